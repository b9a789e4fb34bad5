"""Commands that need no daemon: demo, load, config, version."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hetsched.cli import exits
from hetsched.cli.output import emit, emit_json
from hetsched.cli.parser import add_json, seconds
from hetsched.cli.table import Command


def _version_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def _version(options: argparse.Namespace) -> int:
    from hetsched import __version__

    if options.json:
        emit_json({"version": __version__, "python": sys.version.split()[0]})
    else:
        emit(f"hetsched {__version__}")
    return exits.OK


def _config_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="TOML; without one, the defaults")
    parser.add_argument("--config", metavar="FILE", help="the same")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c", help="as for serve")
    add_json(parser)


def _path(options: argparse.Namespace) -> Path | None:
    name = options.file or options.config
    return Path(name) if name else None


def _config_check(options: argparse.Namespace) -> int:
    from hetsched.config import load

    load(_path(options), options.set)
    if options.json:
        emit_json({"ok": True})
    else:
        emit(f"{options.file or options.config or 'the default configuration'} is good")
    return exits.OK


def _config_show(options: argparse.Namespace) -> int:
    from hetsched.config import load, to_mapping

    tree = to_mapping(load(_path(options), options.set))
    if options.json:
        emit_json(tree)
    else:
        _show_tree("", tree)
    return exits.OK


def _show_tree(prefix: str, tree: dict[str, object]) -> None:
    """One key a line, written so that it can be given to --set again."""
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            _show_tree(f"{prefix}{name}.", value)
        else:
            emit(f"{prefix}{name}={_toml(value)}")


def _toml(value: object) -> str:
    import json

    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _demo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=seconds, default=60.0, metavar="N", help="how long work arrives (60)")
    parser.add_argument("--plain", action="store_true", help="a line a second instead of the live view")
    parser.add_argument("--keep", action="store_true", help="leave the data directory for a look afterwards")
    add_json(parser)


def _demo(options: argparse.Namespace) -> int:
    from hetsched.demo import run

    return run(seconds=options.seconds, plain=options.plain, keep=options.keep, as_json=options.json)


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    """The program behind it reads them."""


def _load(options: argparse.Namespace) -> int:
    from loadtest import main

    return main(options.argv)


COMMANDS = {
    "demo": Command(_demo_arguments, _demo),
    "load": Command(_no_arguments, _load, raw=True),
    "config check": Command(_config_arguments, _config_check),
    "config show": Command(_config_arguments, _config_show),
    "version": Command(_version_arguments, _version),
}
