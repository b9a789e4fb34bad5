"""Front ends: processes beside the deciding one that read what clients send (`server.workers`).

    clients ─▶ front end: HTTP, tokens, decoding, checking ─frames─▶ deciding process: inbox ─▶ turns ─▶ journal
       ▲           │ ▲                                                     │                      │
       │           │ └──────────────── answers, when durable ◀────────────┼──────────────────────┘
       └─ answers ─┘   every other request: the connection itself ────────▶┘ answered there, as without front ends

Promises: a front end knows nothing that would have to survive it. What it answers with 202 the deciding process has called durable; when one
dies its clients see a broken connection and send again, and another one takes its place at once; when the deciding process dies they end.
The order of a connection's requests is kept. Refusals, limits and words are those of a daemon without front ends.

Where things are: `messages.py` what is said; `line.py` how; `baton.py` how a connection changes hands. In the front end: `main.py`, `deputy.py`
(stands for the daemon), `door.py` (what to keep, what to hand over), `tunnel.py` (the same under TLS). In the deciding process: `crew.py`
(starts and replaces them), `counterpart.py` (one of them, as it is heard here).

*Why connections are handed over* and not each request passed on: then the deciding process answers such a connection as if it had accepted it
itself, streams, WebSockets, time limits and half-closed sockets included, and there is no second way for any of them. It does not come back:
who asks for something else than submissions is served by the deciding process from then on.
"""
