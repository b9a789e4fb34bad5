"""The HTTP interface: thin handlers over the daemon, one table of routes, one place where errors become statuses.

Read `routes.py` first (what there is, who may), then `call.py` (what every handler is given). Order of a request: `protocol.py`
(deadlines, caps, broken HTTP) → `problem.py` (errors to problem+json) → `call.py` (host, token, scope, readiness) → handler.
"""
