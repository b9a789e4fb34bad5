"""The shim: a small process beside each task that outlives the agent, ends the task's whole tree, and holds its exit and its logs.

`hs-spawner` (C, in `c/`, built by setup.py) keeps shims ready and hands them the agent's orders; a shim takes one attempt at a time. The
Python files here are the agent's side of what the two share. Order of writes for one attempt, in the agent's directory:

    ledger         "ordered", on disk (fsync) before anybody is asked to begin it         the agent
    tasks/NAME/    appears once, by a rename: the claim; in it                            the shim
      life         who watches it; its process, when it has lasted for 20 ms; how it ended, before that is said
      stdout stderr work/
      stop         the wish to end it; a SIGUSR1 to the shim says "look"                  the agent
    ledger         "ended", then "settled" when the daemon has it                         the agent

An end that nobody listens to is fsynced by the shim itself. What a task leaves nothing in (no output, no files) is used again for the
shim's next task, once the ledger has the end; see c/place.c.

*Why shims that are kept ready (2026-11-30).* Measured with `true` on a busy 2-core machine, processor time a task in µs, in one run:

    fork and exec alone, a single supervisor for the node      691
    a shim forked for each task                                896
    a shim kept ready, woken by a message                      686

A supervisor would be as cheap, but its death would take every task of the node along, or leave them without lease, limit and exit
code; and an orphan that has left its session and cleaned its environment is nobody's child in particular there. A shim is subreaper of
one task only: "no child left" proves that the tree is dead, and what a shim's death costs is one task (its first process dies with it,
the spawner ends the rest; where that is dead too the agent hunts it). Before, a shim was forked from a Python process for each task:
8 ms of processor, 1.6 MB.

The spawner holds nothing: when the agent dies it leaves after its last shim, when it is killed the agent starts another, and shims at work
notice neither. It is a subreaper as well: whoever becomes its child had a shim that is dead, and is killed. So nothing of a task outlives its
lease where the shim was killed while the agent was frozen or dead (2026-11-30, found by simulation); only who kills all three can have that.
`tests/agent_run/test_start_rate.py` prints what a shim weighs, `loadtest/bench_processes.py` what a task costs.
"""
