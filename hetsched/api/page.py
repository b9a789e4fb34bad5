"""The page at `/`: small and honest until there is a dashboard. No script, no data, nothing that needs a token."""

from hetsched import __version__

PAGE = f"""<!doctype html>
<html lang="en">
<meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>hetsched</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem }}
code {{ background: #8882; padding: .1em .3em }}
</style>
<h1>hetsched {__version__}</h1>
<p>The scheduling daemon answers here. There is no dashboard in this release; the same is told by</p>
<ul>
<li><code>hetsched list</code>, <code>hetsched why ID</code>, <code>hetsched events -f</code> on the command line,
<li><a href="/openapi.json">/openapi.json</a>: every call of the HTTP interface,
<li><a href="/metrics">/metrics</a> for Prometheus (needs a token of scope <code>read</code>),
<li><a href="/healthz">/healthz</a>, <a href="/readyz">/readyz</a>, <a href="/version">/version</a>.
</ul>
<p>Calls under <code>/v1</code> need <code>Authorization: Bearer TOKEN</code>; the daemon's own token lies in its data directory.
The documentation is in <code>docs/</code> of the source.
"""
