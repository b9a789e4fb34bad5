"""The house rules that no single room can keep: who may import whom, what is declared, what must not be written down.

The rooms, from outside to inside; a room imports from its own column or from one to the right, never to the left:

    cli client demo doctor loadtest │ api daemon front agent store │ scheduler sim policy │ model errors config metrics … │ _core _scan
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

COLUMNS = (
    ("cli", "client", "demo", "doctor", "loadtest", "__main__"),
    ("api", "daemon", "front", "agent", "store"),
    ("scheduler", "sim", "policy"),
    ("model", "quantity", "errors", "config", "metrics", "wire", "sdnotify"),
    ("_core", "_scan"),
)
COLUMN_OF = {room: column for column, rooms in enumerate(COLUMNS) for room in rooms}
# Imports against the order that are meant, each with its reason.
EXCEPTIONS = {
    ("sim", "agent"): "the health machine is sans-IO and the simulator drives the daemon's own (DESIGN, section 6)",
    ("sim", "store"): "the memory journal stands in for the server (DESIGN, section 6)",
}
# Time, chance and the outside come to the scheduler and the policies as arguments, never by themselves.
SANS_IO = ("scheduler", "policy")
WORLDLY = set("asyncio socket time random secrets uuid threading subprocess aiohttp redis".split())
TEXT_SUFFIXES = set(".py .pyx .pxd .pxi .pyi .md .toml .yaml .yml .service .sh .h .html .js .css".split()) | {""}
# Spelt in parts, so that this file does not name them itself.
FORBIDDEN = {
    "an absolute path of some machine": re.compile("/" + r"(work|home/\w+|Users/\w+|root)/"),
    "the host of a package registry": re.compile(r"(pypi|pythonhosted|npmjs|crates|debian)\." + r"(org|io|com)\b"),
}
IMPORT_NAMES = {"pyyaml": "yaml", "nvidia-ml-py": "pynvml", "prometheus-client": "prometheus_client"}
NOT_IMPORTED = {"hiredis"}  # redis-py picks it up by itself


def tracked_files(root: Path) -> Iterator[Path]:
    """Files that git tracks or would track; without git, all that lie outside of hidden and built directories."""
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            check=True,
        )
        names = [name for name in listing.stdout.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
        names = [name for name in names if not name.startswith((".", "build/"))]
    for name in names:
        if (root / name).is_file():
            yield root / name


def room_of(path: Path, root: Path) -> str:
    """`hetsched/store/frames.py` → `store`; `hetsched/wire.py` → `wire`; `loadtest/run.py` → `loadtest`."""
    parts = path.relative_to(root).with_suffix("").parts
    return parts[1] if parts[0] == "hetsched" else parts[0]


def imports_of(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted module) of every import of the file, inside functions too; relative ones made absolute."""
    package = list(path.relative_to(root).with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from hetsched import store` names a room only in its second half.
            yield from (
                (node.lineno, f"{module}.{alias.name}" if module == "hetsched" else module) for alias in node.names
            )


def python_files(root: Path) -> list[Path]:
    return sorted(path for top in ("hetsched", "loadtest") for path in (root / top).rglob("*.py"))


def test_imports_go_from_the_outer_rooms_to_the_inner_ones(root: Path) -> None:
    wrong = []
    for path in python_files(root):
        room = room_of(path, root)
        if room == "__init__":
            continue
        assert room in COLUMN_OF, f"{path.relative_to(root)}: a new room; give it a place in COLUMNS"
        for line, module in imports_of(path, root):
            parts = module.split(".")
            if parts[0] not in ("hetsched", "loadtest"):
                continue
            other = parts[1] if parts[0] == "hetsched" and len(parts) > 1 else parts[0]
            if other in ("hetsched", "__version__") or (room, other) in EXCEPTIONS:
                continue
            if COLUMN_OF[other] < COLUMN_OF[room]:
                wrong.append(f"{path.relative_to(root)}:{line}: {room} may not import {other}")
    assert not wrong, "\n".join(wrong)


def test_the_scheduler_has_no_clock_no_socket_and_no_chance_of_its_own(root: Path) -> None:
    wrong = [
        f"{path.relative_to(root)}:{line}: imports {module}"
        for path in python_files(root)
        if room_of(path, root) in SANS_IO
        for line, module in imports_of(path, root)
        if module.split(".")[0] in WORLDLY
    ]
    # Formatting a time is no clock, and the names of errors are no machine; asking for the present time or the environment is.
    asks = re.compile(r"\.(now|today|utcnow)\(|\bos\.(?!strerror)")
    wrong += [
        f"{path.relative_to(root)}: asks the world: {found[0]}"
        for path in python_files(root)
        if room_of(path, root) in SANS_IO and (found := asks.search(path.read_text()))
    ]
    assert not wrong, "\n".join(wrong)


def test_what_is_imported_is_declared_and_what_is_declared_is_imported(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[\[<>=~! ]", entry)[0].lower() for entry in project["dependencies"]}
    modules = {IMPORT_NAMES.get(name, name) for name in declared - NOT_IMPORTED}
    used = {
        module.split(".")[0]
        for path in python_files(root)
        for _, module in imports_of(path, root)
        if module.split(".")[0] not in sys.stdlib_module_names
    } - {"hetsched", "loadtest", "amdsmi"}
    assert used - modules == set(), "imported, but no dependency of the project"
    assert modules - used == set(), "a dependency that nothing imports"


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_that_holds_on_one_machine_only_is_written_down(root: Path, what: str) -> None:
    wrong = []
    for path in tracked_files(root):
        if path.suffix not in TEXT_SUFFIXES or path.name == "LICENSE":
            continue
        for number, text in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if FORBIDDEN[what].search(text):
                wrong.append(f"{path.relative_to(root)}:{number}: {what}: {text.strip()[:80]}")
    assert not wrong, "\n".join(wrong)


def test_every_module_opens_by_saying_what_it_is_for(root: Path) -> None:
    silent = [
        str(path.relative_to(root))
        for path in python_files(root)
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent, "no docstring: " + ", ".join(silent)
