"""The shim: one small process per task that outlives the agent, ends the task's whole tree, and holds its exit and its logs.

Only the standard library, and little of it: a shim's memory is what is imported here. Files of an attempt, all in its directory:

    attempt.json   what to run; written by the agent and on disk before anything is started
    shim.pid       who watches it; its creation is exclusive, so an attempt has one shim in all its life
    started.json   the task's process, once exec has succeeded
    stop.json      the wish to end it; a SIGUSR1 to the shim says "look"
    stdout stderr  what it said
    exit.json      how it ended; on disk before the shim leaves
    work/          where it runs if it names no directory

*Why one shim per task, and why forked (2026-11-29).* Measured on a busy 2-core machine, for `true`, from order to durable end:

    a fresh interpreter per task (`python -I -S`)   17 ms until its first line, 4.1 MB of memory of its own
    a shim forked from the nursery (this)           8 ms of processor in all, 1.6 MB of its own; 215 tasks a second end to end
    fork and exec alone, without any shim           2 ms: what a single supervisor for the node would come close to

A supervisor is cheapest, but its death takes every task of the node along, or leaves them without lease, limit and exit code; a
task is worth 6 ms and 1.6 MB to us. A shim is forked from a *nursery*, an interpreter started once by the agent, which has imported
everything already. The nursery holds nothing: when the agent dies it leaves, when it is killed the agent starts another, and
shims notice neither. `tests/agent_run/test_start_rate.py` prints the present figures.
"""
