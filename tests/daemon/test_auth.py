"""Tokens: made once, readable by their owner only, hashed where they are listed, and never more than their scope."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path

import pytest

from hetsched.daemon.auth import SCOPES, Token, load_tokens
from hetsched.errors import ConfigError, Forbidden, Unauthenticated


def bearer(path: Path) -> str:
    return f"Bearer {path.read_text().strip()}"


def test_the_first_start_makes_two_tokens_that_only_their_owner_reads(data_dir: Path) -> None:
    tokens = load_tokens(data_dir)
    for name, scopes in (("token", SCOPES), ("agent-token", ("node",))):
        assert stat.S_IMODE((data_dir / name).stat().st_mode) == 0o600
        assert tokens.identify(bearer(data_dir / name)).scopes == scopes
        assert (data_dir / name).read_text().strip().isalnum(), "it may stand behind --token"
    before = (data_dir / "token").read_text()
    load_tokens(data_dir)
    assert (data_dir / "token").read_text() == before


def test_listed_tokens_are_hashes(data_dir: Path) -> None:
    secret = "a-secret-of-the-ci"
    listed = {
        "name": "ci",
        "sha256": hashlib.sha256(secret.encode()).hexdigest(),
        "scopes": ["submit"],
        "queues": ["ci"],
    }
    (data_dir / "tokens.json").write_text(json.dumps({"tokens": [listed]}))
    token = load_tokens(data_dir).identify(f"bearer {secret}")
    assert token.name == "ci" and token.allows("submit") and not token.allows("read")
    token.require_queue("ci/nightly")
    with pytest.raises(Forbidden, match="bound to ci"):
        token.require_queue("cisco")
    with pytest.raises(Forbidden, match="'immediate'"):
        token.require("immediate")


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic YTpi", "Bearer nobody-issued-this", "Bearer \udcff"]
)
def test_anything_else_is_nobody(data_dir: Path, header: str | None) -> None:
    with pytest.raises(Unauthenticated):
        load_tokens(data_dir).identify(header)


def test_admin_contains_every_scope() -> None:
    assert all(Token(name="a", sha256="0" * 64, scopes=("admin",)).allows(scope) for scope in SCOPES)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "tokens.json"),
        ('{"tokens":[{"name":"x","sha256":"short","scopes":[]}]}', "64 lower-case"),
        ('{"tokens":[{"name":"x","sha256":"' + "0" * 64 + '","scopes":["root"]}]}', "unknown scope 'root'"),
        ('{"tokens":[{"name":"x","secret":"oh","scopes":[]}]}', "secret"),
    ],
)
def test_a_broken_list_is_refused_by_name(data_dir: Path, text: str, said: str) -> None:
    (data_dir / "tokens.json").write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_tokens(data_dir)


def test_a_token_that_others_can_read_is_refused_with_the_command_that_mends_it(data_dir: Path) -> None:
    load_tokens(data_dir)
    (data_dir / "token").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_tokens(data_dir)


@pytest.mark.parametrize(
    "content", [b"", b"short", b"\xe3" * 40, b"two words " * 4, b"line\nline\n" * 5, b"\x00" * 40], ids=ascii
)
def test_a_token_file_that_holds_no_token_is_named_with_the_way_out(data_dir: Path, content: bytes) -> None:
    path = data_dir / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="remove it and a new one"):
        load_tokens(data_dir)


def test_daemons_of_one_store_share_their_tokens(data_dir: Path) -> None:
    """Who starts first leaves them, whoever comes takes them, and finds them where it always does."""
    shared = data_dir / "shared"
    for name in ("a", "b"):
        (data_dir / name).mkdir()
    first, second = (load_tokens(data_dir / name, shared=shared) for name in ("a", "b"))
    for file in ("token", "agent-token"):
        secret = (data_dir / "b" / file).read_text().strip()
        assert secret == (data_dir / "a" / file).read_text().strip() == (shared / file).read_text().strip()
        assert first.identify(f"Bearer {secret}").name == second.identify(f"Bearer {secret}").name
        assert (data_dir / "b" / file).stat().st_mode & 0o777 == (shared / file).stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in shared.iterdir()) == ["agent-token", "token"]


def test_one_that_had_tokens_of_its_own_takes_the_shared_ones(data_dir: Path) -> None:
    shared = data_dir / "shared"
    for name in ("a", "b"):
        (data_dir / name).mkdir()
        load_tokens(data_dir / name)
    kept = (data_dir / "a" / "token").read_text()
    for name in ("a", "b", "a"):
        load_tokens(data_dir / name, shared=shared)
    assert (data_dir / "b" / "token").read_text() == (data_dir / "a" / "token").read_text() == kept
    shared.chmod(0o755)
    with pytest.raises(ConfigError, match="chmod 700"):
        load_tokens(data_dir / "a", shared=shared)
