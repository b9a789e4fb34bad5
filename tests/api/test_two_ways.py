"""`POST /v1/schedule` has two ways: the fast path and aiohttp. Whatever is sent, both say the same, byte for byte.

A header that the fast path does not know sends a request the other way. Each story is told on both ways, to tasks of equal names but for
their first letter; the answers may differ in that letter and in the second of their date.
"""

from __future__ import annotations

import json
import re
import socket
import time

import pytest

from tests.api.test_hostile import BROKEN, FIELDS
from tests.daemon.process import DaemonProcess, drain

SLOW = b"X-Way: slow"
WAY = ("WAY",)
GOOD = b'{"id":"NAME00-1","resources":{"cpu":1}}'
LOCAL = ("Host: localhost", "Authorization: Bearer TOKEN", "Content-Type: application/json")


def request(
    *lines: str,
    body: bytes = GOOD,
    head: tuple[str, ...] = LOCAL,
    first: str = "POST /v1/schedule HTTP/1.1",
    length: int | None = 0,
) -> bytes:
    """NAME00, TOKEN and WAY are filled in when it is told. `length`: added to the true one, None = none is said."""
    sized = () if length is None else (f"Content-Length: {len(body) + length}",)
    return "\r\n".join((first, *WAY, *head, *lines, *sized, "", "")).encode() + body


def without(name: str) -> tuple[str, ...]:
    return tuple(line for line in LOCAL if not line.startswith(name))


def chunked(body: bytes = GOOD) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def instead(line: str) -> tuple[str, ...]:
    return (*without(line.partition(":")[0]), line)


def task(number: int, more: bytes = b"") -> bytes:
    return b'{"id":"NAME00-%d","resources":{"cpu":1}%b}' % (number, more)


READ = b"GET /v1/tasks/NAME00-1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer TOKEN\r\n\r\n"
STORIES: dict[str, bytes] = {
    "a task": request(),
    "a task at length": request(
        body=b'{"id":"NAME00-1","name":"x \\u00e4 \xc3\xa4","queue":"a/b","qos":"background","labels":{"id":"inner"},"deadline":60,'
        b'"priority":-3,"resources":{"cpu":"1500m","memory":"1Gi","gpu":{"count":2,"share":0.5}},"command":["a","\\"id\\":\\"x\\""],"retries":0}'
    ),
    "an id with slashes": request(body=b'{"id":"NAME00/../a//b","resources":{"cpu":1}}'),
    "an id that is a call": request(body=b'{"id":"NAME00/explain","resources":{"cpu":1}}'),
    "an id of dots": request(body=b'{"id":"NAME00...","resources":{"cpu":1}}'),
    "an id with an escape": request(body=b'{"id":"NAME00\\u002d1","resources":{"cpu":1}}'),
    "an id said twice": request(body=b'{"id":"NAME00-1","id":"NAME00-1","resources":{"cpu":1}}'),
    "an id of 128": request(body=b'{"id":"NAME00' + b"x" * 122 + b'","resources":{"cpu":1}}'),
    "an id of 129": request(body=b'{"id":"NAME00' + b"x" * 123 + b'","resources":{"cpu":1}}'),
    "the id last": request(body=b'{ "resources" : {"cpu" : 1} ,\r\n\t"id" : "NAME00-1" }\n'),
    "an inner id": request(body=b'{"id":"NAME00-1","gang":{"id":"NAME00g","size":2},"resources":{"cpu":1}}'),
    "the same again": request() * 3,
    "another body under the id": request() + request(body=b'{"id":"NAME00-1","resources":{"cpu":2}}'),
    "a critical one": request(body=task(1, b',"qos":"critical"')),
    "one that waits for another": request() + request(body=task(2, b',"after":["NAME00-1"]')),
    "one that waits for nobody": request(body=task(2, b',"after":["NAME00-nobody"]')),
    "one that expires": request(body=task(1, b',"deadline":60,"on_deadline":"expire"')),
    "a list": request(body=b"[" + GOOD + b"]"),
    "an array": request(body=b'{"template":{"id":"NAME00-1","resources":{"cpu":1}},"count":2}'),
    "nothing": request(body=b""),
    "zero bytes behind it": request(body=GOOD + b"\0\0"),
    "a body cut by its length": request(length=-1),
    "a body with more than its length": request(length=-1) + b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no length": request(length=None),
    "a length twice": request(f"Content-Length: {len(GOOD)}"),
    "two lengths": request("Content-Length: 5"),
    "a length with a sign": request(f"Content-Length: +{len(GOOD)}", length=None),
    "a length with spaces": request(f"Content-Length:   {len(GOOD)}  ", length=None),
    "a length with zeros": request(f"Content-Length: 00{len(GOOD)}", length=None),
    "a length beyond the limit": request("Content-Length: 104857600", length=None, body=b""),
    "a length of words": request("Content-Length: many", length=None),
    "chunks": request("Transfer-Encoding: chunked", body=chunked(), length=None),
    "chunks and a length": request("Transfer-Encoding: chunked", body=chunked()),
    "an odd transfer": request("Transfer-Encoding: gzip"),
    "an expectation": request("Expect: a-banana"),
    "an encoding that is none": request("Content-Encoding: br"),
    "another method": request(first="PUT /v1/schedule HTTP/1.1"),
    "a method in small": request(first="post /v1/schedule HTTP/1.1"),
    "two spaces": request(first="POST  /v1/schedule HTTP/1.1"),
    "an absolute target": request(first="POST http://localhost/v1/schedule HTTP/1.1"),
    "an absolute target elsewhere": request(first="POST http://elsewhere/v1/schedule HTTP/1.1"),
    "a query": request(first="POST /v1/schedule?a=b HTTP/1.1"),
    "an empty query": request(first="POST /v1/schedule? HTTP/1.1"),
    "a fragment": request(first="POST /v1/schedule#a HTTP/1.1"),
    "an escaped path": request(first="POST /v1/sch%65dule HTTP/1.1"),
    "a path in capitals": request(first="POST /V1/SCHEDULE HTTP/1.1"),
    "a slash too many": request(first="POST /v1/schedule/ HTTP/1.1"),
    "HTTP/1.0": request(first="POST /v1/schedule HTTP/1.0"),
    "HTTP/1.0 kept alive": request("Connection: keep-alive", first="POST /v1/schedule HTTP/1.0") + request(body=task(2)),
    "HTTP/1.2": request(first="POST /v1/schedule HTTP/1.2"),
    "HTTP/2.0": request(first="POST /v1/schedule HTTP/2.0"),
    "keep-alive": request("Connection: keep-alive") + request("connection:KEEP-ALIVE", body=task(2)),
    "close": request("Connection: close") + request(body=task(2)),
    "an upgrade": request("Connection: upgrade", "Upgrade: websocket"),
    "no host": request(head=without("Host")),
    "two hosts": request("Host: localhost"),
    "a foreign host": request(head=instead("Host: example.com")),
    "a host with a port": request(head=instead("Host: LOCALHOST:80")),
    "an empty host": request(head=instead("Host: ")),
    "no token": request(head=without("Authorization")),
    "a wrong token": request(head=instead("Authorization: Bearer nothing")),
    "two tokens": request("Authorization: Bearer nothing"),
    "another scheme": request(head=instead("Authorization: Basic TOKEN")),
    "a scheme in small": request(head=instead("Authorization: bearer  TOKEN")),
    "no media type": request(head=without("Content-Type")),
    "another media type": request(head=instead("Content-Type: text/plain")),
    "a charset": request(head=instead('Content-Type: Application/JSON ; charset="UTF-8"')),
    "a foreign charset": request(head=instead("Content-Type: application/json; charset=latin-1")),
    "two media types": request("Content-Type: application/json"),
    "headers in capitals": request(head=tuple(name.upper() if name.startswith("C") else name for name in LOCAL)),
    "no space behind the colon": request(head=tuple(line.replace(": ", ":") for line in LOCAL)),
    "a space before the colon": request("Accept : */*"),
    "a folded header": request("Accept: a", " b"),
    "an empty header": request("Accept:"),
    "a header without a name": request(": x"),
    "a header without a colon": request("Accept"),
    "a control character": request("Accept: a\x01b"),
    "a carriage return": request("Accept: a\rb"),
    "bare line feeds": request().replace(b"\r\n", b"\n"),
    "a line before": b"\r\n" + request(),
    "a header of 9000": request("User-Agent: " + "x" * 9000),
    "200 headers": request(*(f"X-{number}: a" for number in range(200))),
    "a preference": request("Prefer: wait=0"),
    "a key": request("Idempotency-Key: NAME00") * 2,
    "many in one": b"".join(request(body=task(number)) for number in range(50)),
    "both kinds": request() + READ + request(body=task(2)) + READ + request("Connection: close", body=task(3)),
    "a fault in the middle": request() + request(body=b"{") + request(body=task(2)),
    "what is no HTTP": b"hello\r\n\r\n",
}  # fmt: skip


class Talk:
    """Tells a story on one way, on a connection of its own."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.daemon = daemon
        self.told = 0

    def on_both_ways(self, story: bytes) -> tuple[bytes, bytes]:
        """All that is answered to it, made comparable."""
        self.told += 1
        return self._on_way("f", story), self._on_way("s", story)

    def _on_way(self, way: str, story: bytes, before: int = 0) -> bytes:
        name = f"{way}{self.told:05}".encode()
        answers = comparable(self.answers(self.said(way, name, story), before=before).replace(name, b"NAME00"))
        return re.sub(rb"\d{4}-\d\d-\d\dT[0-9:.]*Z", b"TIME", answers)

    def said(self, way: str, name: bytes, story: bytes) -> bytes:
        story = story.replace(b"NAME00", name).replace(b"TOKEN", self.daemon.token.encode())
        return re.sub(rb"WAY\r?\n", b"", story) if way == "f" else story.replace(b"WAY", SLOW)

    def on_the_fast_way_alone(self, story: bytes) -> bytes:
        """The same on a connection that has brought nothing but single tasks, so that its lane reads by itself."""
        return self._on_way("f", story, before=2)

    def answers(self, *pieces: bytes, before: int = 0) -> bytes:
        """`before`: so many tasks are submitted first."""
        with socket.create_connection(("127.0.0.1", self.daemon.port), timeout=5) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for number in range(before):
                line.sendall(self.said("f", b"before", request(body=task(number))))
                assert drain(line).startswith(b"HTTP/1.1 202 ")
            for piece in pieces:
                line.sendall(piece)
                time.sleep(0.001 if len(pieces) > 1 else 0)
            line.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: line.recv(65536), b""))

    def taken_fast(self) -> int:
        """Requests that aiohttp never saw."""
        metrics = self.daemon.get("/metrics").body.decode()
        return int(float(re.search(r"^hetsched_submissions_fast_total (\S+)", metrics, re.MULTILINE)[1]))  # type: ignore[index]


@pytest.fixture(scope="module")
def talk(daemon: DaemonProcess) -> Talk:
    return Talk(daemon)


@pytest.mark.parametrize("name", STORIES)
def test_both_ways_say_the_same(talk: Talk, name: str) -> None:
    fast, slow = talk.on_both_ways(STORIES[name])
    assert fast == slow and fast.startswith(b"HTTP/")


@pytest.mark.parametrize("name", STORIES)
def test_who_brought_single_tasks_before_is_told_the_same(talk: Talk, name: str) -> None:
    talk.told += 1
    alone = talk.on_the_fast_way_alone(STORIES[name])
    fast, _ = talk.on_both_ways(STORIES[name])
    assert alone == fast


@pytest.mark.parametrize(
    "name", ["a task", "an id with slashes", "the same again", "a critical one", "many in one", "a host with a port"]
)
def test_the_fast_way_is_taken(talk: Talk, name: str) -> None:
    before = talk.taken_fast()
    talk.on_both_ways(STORIES[name])
    assert talk.taken_fast() - before == STORIES[name].count(b"POST")


@pytest.mark.parametrize("bodies", ["no json", "fields"])
def test_both_ways_refuse_bodies_with_the_same_words(talk: Talk, bodies: str) -> None:
    broken = list(BROKEN.values()) if bodies == "no json" else [json.dumps(body).encode() for body, _ in FIELDS]
    for body in broken:
        story = request(body=body)
        fast, slow = talk.on_both_ways(story)
        assert fast == slow, body[:200]


GOODS = b",".join(task(number) for number in range(5))
LISTS: dict[str, bytes] = {
    "tasks": b"[" + GOODS + b"]",
    "one": b"[" + GOOD + b"]",
    "spaces": b" [\n" + GOODS.replace(b",{", b" ,\t{") + b"\r\n] ",
    "kinds": b"[" + GOODS + b"," + task(9, b',"qos":"critical"') + b"," + task(8, b',"priority":3') + b"]",
    "some without id": b'[{"resources":{"cpu":1}},' + GOODS + b"]",
    "the same twice": b"[" + GOODS + b"," + GOOD + b"]",
    "two bodies under an id": b"[" + GOODS + b"," + task(1, b',"priority":3') + b"]",
    "ties": b"[" + GOODS + b"," + task(7, b',"after":["NAME00-1"]') + b"]",
    "a gang": b"["
    + task(1, b',"gang":{"id":"NAME00","size":2}')
    + b","
    + task(2, b',"gang":{"id":"NAME00","size":2}')
    + b"]",
    "a fault": b"[" + GOODS + b',{"resources":{"cpu":-1}}]',
    "only faults": b'[{"resources":{"cpu":-1}},{"resuorces":{"cpu":1}}]',
    "a list within": b"[" + GOODS + b",[" + task(9) + b"]]",
    "an array within": b"[" + GOODS + b',{"template":' + task(9) + b',"count":2}]',
    "nothing": b"[]",
    "an end missing": b"[" + GOODS,
    "an end too many": b"[" + GOODS + b"]]",
    "a comma too many": b"[" + GOODS + b",]",
    "numbers": b"[1,2]",
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("media", ["application/json", "application/x-ndjson"])
def test_lists_are_answered_alike_however_they_are_read(talk: Talk, name: str, media: str) -> None:
    """A key makes the daemon look at tasks one by one."""
    body = LISTS[name]
    if media.endswith("ndjson"):
        body = body.strip(b" []\r\n").replace(b"},{", b"}\n\r\n{") + b"\n"
    lines = (f"Content-Type: {media}", "Idempotency-Key: KEY-NAME00")
    for _ in range(2):
        _, looked_at = talk.on_both_ways(request(*lines, head=without("Content-Type"), body=body))
        _, bundled = talk.on_both_ways(request(lines[0], head=without("Content-Type"), body=body))
        assert without_made_up_ids(bundled) == without_made_up_ids(looked_at)


def without_made_up_ids(answer: bytes) -> bytes:
    return re.sub(rb'"[0-9a-z]{16}"', b'"MADE-UP"', answer)


def test_what_was_whole_before_the_garbage_is_answered(talk: Talk) -> None:
    """aiohttp forgets what it has parsed of a piece when the rest of the piece is no HTTP; the task would have been refused unheard."""
    answers = talk.answers(talk.said("f", b"before", request() + b"garbage\r\n\r\n"))
    assert re.findall(rb"HTTP/1.. (\d+)", answers) == [b"202", b"400"]


def test_a_request_may_be_split_at_every_byte(talk: Talk) -> None:
    whole = talk.said("f", b"splits", request() + request(body=task(2)))
    expected = comparable(talk.answers(whole))
    assert expected.count(b" 202 ") == 2
    for at in range(1, len(whole) // 2 + 9):
        assert comparable(talk.answers(whole[:at], whole[at:])) == expected, at
        assert comparable(talk.answers(whole[:at], whole[at:], before=2)) == expected, at


def test_a_connection_goes_back_to_the_fast_way(talk: Talk) -> None:
    kinds = [request(), READ, request(body=task(2)), request("WAY", body=task(3)), request(body=task(4))]
    before = talk.taken_fast()
    with socket.create_connection(("127.0.0.1", talk.daemon.port), timeout=5) as line:
        for one in kinds:
            line.sendall(talk.said("s" if one.count(b"WAY") > 1 else "f", b"back00", one))
            assert drain(line).startswith((b"HTTP/1.1 202", b"HTTP/1.1 200"))
    assert talk.taken_fast() - before == 3


def test_thousands_of_requests_in_one_go_are_answered_in_order(talk: Talk) -> None:
    said = b"".join(talk.said("f", b"order0", request(body=task(number))) for number in range(3000))
    for before in (0, 2):
        answers = talk.answers(said, before=before)
        found = [int(number) for number in re.findall(rb"Location: /v1/tasks/order0-(\d+)", answers)]
        assert found == list(range(3000))


@pytest.mark.slow
@pytest.mark.parametrize("before", [0, 2])
def test_a_client_that_reads_nothing_is_read_no_further(talk: Talk, before: int) -> None:
    said = b"".join(talk.said("f", b"deaf00", request(body=task(number))) for number in range(100_000))
    with socket.create_connection(("127.0.0.1", talk.daemon.port), timeout=20) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for number in range(before):
            line.sendall(talk.said("f", b"deaf00", request(body=task(number))))
            assert drain(line).startswith(b"HTTP/1.1 202 ")
        line.settimeout(1.0)
        sent = 0
        try:
            while sent < len(said):
                sent += line.send(said[sent : sent + 65536])
        except TimeoutError:
            pass
        assert sent < len(said), "the daemon keeps answers without bound"
        line.settimeout(20.0)
        got = b""
        while not got.count(b"HTTP/1.1 202") > 1000:
            got += line.recv(65536)


def comparable(answers: bytes) -> bytes:
    return re.sub(rb"\r\nDate: [^\r]*", b"", answers)
