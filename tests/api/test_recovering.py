"""Before the journal is read and after SIGTERM: an honest 503, never a half-true answer."""

from __future__ import annotations

from aiohttp.test_utils import TestClient, TestServer

from hetsched.api.app import make_app
from hetsched.api.desk import Desk
from hetsched.config import Config
from hetsched.daemon.auth import SCOPES, Token, Tokens

SECRET = "a"
HASH = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
HEADERS = {"Authorization": f"Bearer {SECRET}"}


async def test_a_daemon_that_recovers_lives_but_is_not_ready() -> None:
    desk = Desk(Config(), Tokens([Token(name="t", sha256=HASH, scopes=SCOPES)]), hosts=None, insecure=False)
    async with TestClient(TestServer(make_app(desk))) as client:
        for state in ("recovering", "stopping"):
            desk.state = state
            assert (await (await client.get("/healthz")).json())["state"] == state
            assert (await client.head("/healthz")).status == 200
            for method, path in (
                ("GET", "/readyz"),
                ("GET", "/v1/tasks"),
                ("GET", "/metrics"),
                ("DELETE", "/v1/tasks/x"),
            ):
                answer = await client.request(method, path, headers=HEADERS)
                assert answer.status == 503 and int(answer.headers["Retry-After"]) >= 1
                assert answer.content_type == "application/problem+json" and state in (await answer.json())["detail"]
            assert (await client.get("/v1/tasks")).status == 401, "who may ask is known even now"
            assert (await client.get("/version")).status == 200
