"""The whole of hetsched under a virtual clock: real daemon, scheduler, core, journal, agent and its files; simulated time, network,
server, processes. Faults by seed, an auditor that knows only the rules. `python -m tests.simulation --help`; README.md tells how.
"""
