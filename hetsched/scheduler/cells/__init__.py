"""Cells: parts of a larger cluster, each with its nodes, its journal and its leader; and how a task goes from one to another, at most once.

A task is one cell's at any moment: its home's, which accepted it, or that of the cell which took it. The way of a task that another cell
can take and this one cannot, or not now:

    home                                                 there
    accepted: `Sent`, durable, 202                       —
        ── parcel n ──▶                                  n is the next from this home: judged; its tasks accepted, `Heard`, in one frame
                                  ◀── verdict n ──       durable
    `Answered`: taken tasks are known to be there, refused ones are accepted here and never go anywhere again

Parcels and verdicts lie in a stream that each cell has, its inbox. Promises, whatever is lost, doubled, late or out of order there, and
whoever dies at any point: what was sent is taken or comes back; parcels of a home are taken in their order, each once, because the place in
the inbox and the number last taken are in the frame that holds the tasks; until the verdict is heard the parcel is sent again; a verdict is
kept until its home has it; what came from elsewhere or came back is never sent on. A gang that goes, goes whole.

  digest     what a cell tells all others of itself, and what of that a task could use
  letters    parcels and verdicts
  crossings  what stands in the journal of them
  clerk      who goes where, and what is done about letters
"""
