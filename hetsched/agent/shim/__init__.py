"""The shim: one small process per task that outlives the agent, ends the task's whole tree, and holds its exit and its logs.

Only the standard library, and little of it: a shim's memory is what is imported here. Files of an attempt, all in its directory:

    attempt.json   what to run; written by the agent and on disk before anything is started
    shim.pid       who watches it; its creation is exclusive, so an attempt has one shim in all its life
    started.json   the task's process, once exec has succeeded
    stop.json      the wish to end it; a SIGUSR1 to the shim says "look"
    stdout stderr  what it said
    exit.json      how it ended; on disk before the shim leaves
    work/          where it runs if it names no directory

*Why one shim per task, and why forked (2026-11-29).* Three ways were measured on a 2-core machine. A fresh interpreter per task
(`python -I -S`, five modules): 17 ms and 4.1 MB of private memory each. One supervisor for the whole node: cheapest (a fork per
task, 0.7 ms), but its death takes every task of the node along or leaves them without lease, limit and exit code. Chosen: a
*nursery*, an interpreter started once by the agent that has imported everything and forks a shim per order. It costs a fork more
than the supervisor (see `tests/agent_run/test_start_rate.py` for the figure), most of its memory is shared with the nursery, and
what can go wrong in a shim goes wrong for one task. The nursery holds nothing: when the agent dies it leaves, when it is killed
the agent starts another, and shims notice neither.
"""
