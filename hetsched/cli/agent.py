"""`agent`: reads the configuration, then becomes the agent of this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from hetsched.cli.parser import Usage
from hetsched.cli.table import Command


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server", metavar="URL", help="the daemon, or several with commas (HETSCHED_URL; else the data directory)"
    )
    parser.add_argument("--token", metavar="TOKEN", help="an agent's token (HETSCHED_TOKEN; else the data directory)")
    parser.add_argument("--name", metavar="NAME", help="of the node (else the host's)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="its records and the tasks' logs (HETSCHED_DATA)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML; configs/hetsched.toml shows every key")
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c", help="a key over the file; may repeat")
    parser.add_argument("--fake", metavar="PROFILE", help="pretend: gpu:A100:8,tpu:v5e:4,cpu:64,memory:256Gi")


def _agent(options: argparse.Namespace) -> int:
    import logging

    from hetsched.agent.fake import FakeProfileError, parse_fake
    from hetsched.agent.main import main
    from hetsched.client.address import data_dir
    from hetsched.config import load

    config = load(options.config, options.set)
    try:
        parse_fake(options.fake or "cpu:1")
    except FakeProfileError as error:
        raise Usage(str(error)) from None
    logging.basicConfig(level=config.server.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return main(
        data_dir=options.data or data_dir(),
        config=config,
        server=options.server,
        name=options.name,
        fake=options.fake,
        token=options.token,
    )


COMMANDS = {"agent": Command(_arguments, _agent)}
