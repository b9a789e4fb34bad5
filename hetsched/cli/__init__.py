"""The program `hetsched`: finds the command, loads its module, runs it, and turns whatever goes wrong into an exit code.

A command line is read as words: the command's name (one word or two), then its options; what follows `--` belongs to the
command that is to run on the cluster and is never looked at.
"""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence

from hetsched.cli.parser import Parser, Usage, nearest
from hetsched.cli.table import GROUPS, TABLE, Command

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# These may also stand before the command's name.
_GLOBAL_WITH_VALUE = ("--url", "--token", "--data", "--data-dir")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line; the exit code of CONTRACT, section 4."""
    words = list(sys.argv[1:] if argv is None else argv)
    _open_what_is_closed()
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except Usage as error:
        return _usage(error)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit as error:  # argparse's --help
        return error.code if isinstance(error.code, int) else 2
    except OSError as error:
        if error.errno not in _NO_ROOM:
            return _failed(error)
        return _output_full(error)
    except Exception as error:
        return _failed(error)


def _open_what_is_closed() -> None:
    """Started with `>&-`, Python has no stdout at all; what is written there is lost then, as the caller wished."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))


def _run(words: list[str]) -> int:
    name, rest = _command_name(words)
    if name is None:
        _help()
        return 0
    module = importlib.import_module(f"hetsched.cli.{TABLE[name].module}")
    command: Command = module.COMMANDS[name]
    if command.raw:
        return command.run(Namespace(argv=rest))
    parser = Parser(name, TABLE[name].about, command.usage)
    command.arguments(parser)
    own, after = _split_command(rest)
    options = parser.parse_args(own)
    options.argv = after
    options.verb = name.split()[-1]
    if after is not None and "COMMAND" not in (command.usage or ""):
        raise Usage(f"{name} takes nothing after --", parser.format_usage().strip())
    return command.run(options)


def _command_name(words: list[str]) -> tuple[str | None, list[str]]:
    """The command, and its words with options that stood before it moved behind."""
    early: list[str] = []
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word in ("-h", "--help"):
            return None, []
        if word in ("-V", "--version"):
            return "version", []
        if word.split("=")[0] not in (*_GLOBAL_WITH_VALUE, "--json"):
            raise Usage(f"no option {word} before the command" + nearest(word, _GLOBAL_WITH_VALUE), _USAGE)
        early.append("--data-dir" + word[6:] if word.split("=")[0] == "--data" else word)
        if word in _GLOBAL_WITH_VALUE and words:
            early.append(words.pop(0))
    if not words or words[0] == "help":
        return None, []
    name, rest = words[0], words[1:]
    if name in GROUPS:
        return _second_word(name, rest, early)
    if name not in TABLE:
        raise Usage(f"no command {name!r}" + nearest(name, {*TABLE, *GROUPS}), _USAGE)
    return name, early + rest


def _second_word(group: str, rest: list[str], early: list[str]) -> tuple[str | None, list[str]]:
    verbs = [name.split()[1] for name in TABLE if name.startswith(group + " ")]
    usage = f"usage: hetsched {group} {{{','.join(verbs)}}} …"
    if rest and rest[0] in ("-h", "--help"):
        print(usage)
        for verb in verbs:
            print(f"  {verb:<10} {TABLE[f'{group} {verb}'].about}")
        raise SystemExit(0)
    if not rest or rest[0] not in verbs:
        word = rest[0] if rest else ""
        raise Usage((f"no {group} command {word!r}" if word else f"{group} what?") + nearest(word, verbs), usage)
    return f"{group} {rest[0]}", early + rest[1:]


def _split_command(words: list[str]) -> tuple[list[str], list[str] | None]:
    if "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1 :]


_USAGE = "usage: hetsched COMMAND [options]      hetsched --help lists the commands"


def _help() -> None:
    print("usage: hetsched COMMAND [options]\n\nA scheduling daemon for clusters of unlike machines.\n")
    for name, entry in TABLE.items():
        print(f"  {name:<14} {entry.about}")
    print("\nhetsched COMMAND --help tells more. The daemon is found by --url and --token, by HETSCHED_URL and")
    print("HETSCHED_TOKEN, or by the files in its data directory (--data).")


def _usage(error: Usage) -> int:
    sys.stderr.write(f"hetsched: {error}\n" + (f"{error.usage}\n" if error.usage else ""))
    return 2


def _failed(error: Exception) -> int:
    from hetsched.cli import exits, report
    from hetsched.errors import HetschedError

    if not isinstance(error, HetschedError | TimeoutError):
        raise error
    report.explain(error)
    return exits.code_of(error)


def _output_full(error: OSError) -> int:
    """The answer could not be written: that is no success, and no traceback."""
    sys.stderr.write(f"hetsched: cannot write the output: {error.strerror}\n")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 2


def _reader_gone() -> int:
    """Whoever read our output has had enough (`| head`): no complaint, and none from the interpreter at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
