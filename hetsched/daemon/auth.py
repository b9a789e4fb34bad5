"""Who may do what: tokens, their scopes, and the queues they are bound to.

Promises: a token is needed even on loopback; only SHA-256 hashes are kept (the two made at first start also lie beside the journal in
files of mode 0600, so that the CLI and an agent on this machine find them); comparison takes the same time whichever token is close;
a secret is never logged. `DATA/tokens.json` is read at start and again on SIGHUP.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

import msgspec

from hetsched.errors import ConfigError, Forbidden, Unauthenticated

SCOPES = ("submit", "read", "cancel", "immediate", "node", "admin")
ADMIN_FILE = "token"
AGENT_FILE = "agent-token"
TOKENS_FILE = "tokens.json"


class Token(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`sha256`: of the secret, hex. `admin` contains every other scope. `queues`: only in these and below; empty = all."""

    name: str
    sha256: str
    scopes: tuple[str, ...]
    queues: tuple[str, ...] = ()

    def check(self, where: str) -> None:
        """Raise ConfigError naming the field that breaks a rule."""
        if len(self.sha256) != 64 or not set(self.sha256) <= set("0123456789abcdef"):
            raise ConfigError(f"{where}: sha256 of token {self.name!r} has to be 64 lower-case hexadecimal digits")
        for scope in self.scopes:
            if scope not in SCOPES:
                raise ConfigError(
                    f"{where}: token {self.name!r} has the unknown scope {scope!r}; known: {', '.join(SCOPES)}"
                )

    def allows(self, scope: str) -> bool:
        """Whether it carries the scope."""
        return scope in self.scopes or "admin" in self.scopes

    def require(self, scope: str) -> None:
        """Raise Forbidden unless it carries the scope."""
        if not self.allows(scope):
            raise Forbidden(
                f"this needs the scope {scope!r}; token {self.name!r} has {', '.join(self.scopes) or 'none'}"
            )

    def owns_queue(self, queue: str) -> bool:
        """Whether it may change things in the queue."""
        return not self.queues or any(queue == own or queue.startswith(own + "/") for own in self.queues)

    def require_queue(self, queue: str) -> None:
        """Raise Forbidden unless it may change things in the queue."""
        if not self.owns_queue(queue):
            raise Forbidden(f"token {self.name!r} is bound to {', '.join(self.queues)}; this is queue {queue!r}")


class Tokens:
    """All tokens that are accepted."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self.all = tuple(tokens)
        self._digests = tuple(bytes.fromhex(token.sha256) for token in self.all)

    def identify(self, header: str | None) -> Token:
        """The token of an `Authorization` header; raises Unauthenticated."""
        if header is None:
            raise Unauthenticated("send the header Authorization: Bearer TOKEN; the daemon's own is in DATA/token")
        kind, _, secret = header.partition(" ")
        if kind.lower() != "bearer" or not secret.strip():
            raise Unauthenticated("the Authorization header has to read: Bearer TOKEN")
        digest = hashlib.sha256(secret.strip().encode("utf-8", "surrogateescape")).digest()
        found = None
        for known, token in zip(self._digests, self.all, strict=True):
            if hmac.compare_digest(known, digest):
                found = token
        if found is None:
            raise Unauthenticated("this token is not known here")
        return found


def load_tokens(data_dir: Path, configured: Iterable[Token] = (), shared: Path | None = None) -> Tokens:
    """Configured ones, those of `DATA/tokens.json`, and the two of first start, which are made if absent. `shared`: a directory of all daemons
    of a store, whose tokens are everybody's. Raises ConfigError."""
    try:
        if shared is not None:
            _share(data_dir, shared)
            configured = [*configured, *_read_tokens(shared / TOKENS_FILE)]
        return _load(data_dir, configured)
    except OSError as error:
        raise ConfigError(f"cannot keep tokens in {data_dir}: {error.strerror or error}") from error


def _load(data_dir: Path, configured: Iterable[Token]) -> Tokens:
    tokens = [
        Token(name="admin", sha256=_hash(_secret_file(data_dir / ADMIN_FILE)), scopes=SCOPES),
        Token(name="agent", sha256=_hash(_secret_file(data_dir / AGENT_FILE)), scopes=("node",)),
    ]
    added = [*configured, *_read_tokens(data_dir / TOKENS_FILE)]
    for token in added:
        token.check(TOKENS_FILE)
    return Tokens(tokens + added)


def _share(data_dir: Path, shared: Path) -> None:
    """The two of first start are those in `shared`; where there are none yet they are ours."""
    shared.mkdir(mode=0o700, parents=True, exist_ok=True)
    if shared.stat().st_mode & 0o077:
        raise ConfigError(f"{shared} (auth.directory) is open to others; run: chmod 700 {shared}")
    for name in (ADMIN_FILE, AGENT_FILE):
        ours, theirs = data_dir / name, shared / name
        if not theirs.exists():
            part = shared / f"{name}.{secrets.token_hex(8)}"
            _write_secret(part, _secret_file(ours))
            with contextlib.suppress(FileExistsError):
                os.link(part, theirs)  # of those who come first at once one stays
            part.unlink()
        secret = _secret_file(theirs)
        if not ours.exists() or _secret_file(ours) != secret:
            part = ours.with_name(f"{name}.shared")
            part.unlink(missing_ok=True)
            _write_secret(part, secret)
            part.rename(ours)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _secret_file(path: Path) -> str:
    """The secret in the file; a new one is written first if there is none. Whole or not at all, readable by its owner only."""
    try:
        secret = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        secret = secrets.token_hex(32)  # no word of a command line that begins with a dash
        part = path.with_name(path.name + ".new")
        part.unlink(missing_ok=True)
        _write_secret(part, secret)
        part.rename(path)
        return secret
    if len(secret) < 16 or not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise ConfigError(f"{path} holds no usable token; remove it and a new one is made at the next start")
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"{path} is readable by others; run: chmod 600 {path}")
    return secret


def _write_secret(path: Path, secret: str) -> None:
    """To a new file, durably."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(secret + "\n")
        file.flush()
        os.fsync(file.fileno())


class _TokensFile(msgspec.Struct, forbid_unknown_fields=True):
    tokens: tuple[Token, ...] = ()


def _read_tokens(path: Path) -> tuple[Token, ...]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_TokensFile).tokens
    except FileNotFoundError:
        return ()
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path}: {error}") from error
