"""Options of commands that look at a store themselves, without a daemon, and what they name.

The configuration decides how facts are read (whether devices are shared, say), so the one of the daemon is taken: the file that it left in
its data directory, unless another is named.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hetsched.cli.parser import add_json

if TYPE_CHECKING:
    from hetsched.config import Config
    from hetsched.store.archive import Archive


class Place(NamedTuple):
    """Where the journal is."""

    data_dir: Path
    url: str
    config: Config

    def open(self) -> Archive:
        """To be entered. Raises Conflict where a daemon runs on it."""
        from hetsched.errors import Conflict
        from hetsched.store import DirectoryBusy, open_archive

        try:
            return open_archive(self.url, self.data_dir, self.config)
        except DirectoryBusy as error:
            raise Conflict(
                f"{error.detail}. (Its journal server is its own; the daemon has to be stopped first)"
            ) from None


def add_place(parser: argparse.ArgumentParser) -> None:
    """Which store."""
    group = parser.add_argument_group("the store")
    group.add_argument("--data", metavar="DIR", help="the daemon's data directory (HETSCHED_DATA)")
    group.add_argument("--data-dir", dest="data", help=argparse.SUPPRESS)
    group.add_argument("--store", metavar="URL", help="a server of your own (default: as the daemon was told)")
    group.add_argument("--config", type=Path, metavar="FILE", help="configuration (default: the daemon's last one)")
    group.add_argument("--set", action="append", default=[], metavar="a.b=c", help="as for serve")
    add_json(parser)


def place_of(options: argparse.Namespace) -> Place:
    """What the options name. Raises ConfigError."""
    from hetsched.client.address import data_dir
    from hetsched.config import from_mapping, load
    from hetsched.daemon.lock import CONFIG_FILE

    where = Path(options.data) if options.data else data_dir()
    left = where / CONFIG_FILE
    if options.config is None and left.is_file():
        config = from_mapping(json.loads(left.read_text()), simulated=False, sets=options.set)
    else:
        config = load(options.config, options.set)
    return Place(where, options.store or config.store.url, config)
