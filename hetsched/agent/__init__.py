"""The node's side: finds its devices, runs attempts as real processes under shims, reports to the daemon, survives it.

Kept free of imports: every shim lives below this package and pays for what is loaded here.
"""
