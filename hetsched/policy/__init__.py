"""How nodes are ranked: terms in [0, 1] over nodes, blended by weights; the catalogue of accelerators; plug-ins; learned profiles.

Sans-IO, like the scheduler that asks it. Nothing here runs once per task: terms are vectors over all nodes for one shape, computed when
the shape or the nodes changed, and the core blends them with what only its tables know (`_core/terms.pxi`).

  presets    which terms there are, who said so, and what each preset weighs them by
  classify   training, inference, batch or service, from a task's fields
  catalogue  figures of accelerators by model, a source a row
  fleet      the nodes as arrays
  terms      one function a term
  blend      a shape's terms in, the core's byte a node and its weights out
  scorers    plug-ins
  price      what free capacity is worth under what is asked, for the preset of that name; patterns: its linear program
  speeds     how fast each device model is: learned run times, figures where little was learned
  rates      seconds per work of graphs' operators, by device model; heft, timetable: which of them goes where
  profiles   run times learned per (task type, device model, size)
"""

from hetsched.policy.price import Pricer

__all__ = ["Pricer"]
