"""The daemon: the only wiring between the scheduler, which decides, and the world, which changes.

Read `main.py` (start and stop in order, and what a standby does instead), then `turns.py` (the loop), then `links.py` (the agents). The
scheduler is called from `turns.py` alone. Nothing here decides where a task runs.

    clients ─ api ─▶ inbox ─▶ ┌ turns: step ─▶ journal ─▶ release ┐ ─▶ replies ─▶ api
    agents ─ links ─▶ inbox   └────────────────────────────────────┘ ─▶ orders ─▶ links · events ─▶ ring ─▶ watchers
"""
