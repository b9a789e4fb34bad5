"""`serve`: reads the configuration, then becomes the daemon."""

from __future__ import annotations

import argparse
from pathlib import Path

from hetsched.cli.parser import whole
from hetsched.cli.table import Command


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML; configs/hetsched.toml shows every key")
    parser.add_argument("--listen", metavar="HOST:PORT", help="127.0.0.1:0 picks a port")
    parser.add_argument(
        "--store",
        metavar="URL",
        help="embedded: (default), redis://…, rediss://…, unix://…, redis+sentinel://…, redis+cluster://…, memory:",
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="store, tokens, logs and identity (HETSCHED_DATA)")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c", help="a key over the file; may repeat")
    parser.add_argument(
        "--workers", type=whole, metavar="N", help="front ends beside the deciding process (server.workers)"
    )
    parser.add_argument(
        "--insecure", action="store_true", help="listen beyond this machine without TLS, knowing better"
    )


def _serve(options: argparse.Namespace) -> int:
    from hetsched.client.address import data_dir
    from hetsched.config import load
    from hetsched.daemon.binding import parse_listen
    from hetsched.daemon.main import serve

    workers = [] if options.workers is None else [f"server.workers={options.workers}"]
    config = load(options.config, [*options.set, *workers])
    parse_listen(
        options.listen or config.server.listen
    )  # here a ConfigError is a matter of the command line: exit code 2
    where = options.data or data_dir()
    return serve(config, where, listen=options.listen, store_url=options.store, insecure=options.insecure)


COMMANDS = {"serve": Command(_arguments, _serve)}
