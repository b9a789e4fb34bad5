"""Graphs of operators: what is known of each (`state`), and how its work is cut into tasks for the devices that suit it.

The flow of a turn: facts of tasks move the state (`Graphs`, live and at replay alike); before the lanes are decided, `Conductor.review` cuts
what is due, in the order of upward rank, where the plan wants it (`course`, on the nodes of `sites`); the cuts are ordinary tasks from then
on. Nothing else waits in the core for a graph, so a piece is as large as the devices that are free deserve, and what is lost is cut anew.

  state      what stands in the journal of a graph, and what follows from the ends of its tasks
  sites      the nodes as a plan sees them: capacity, what is free now, what suits which operator at what speed
  course     one graph's plan, by HEFT, and when it has to be made again
  cutting    what of an operator goes to which node now
  conductor  all graphs together: whose turn it is, tasks cut and withdrawn
  clients    what people ask of graphs
  view       the read side
"""
