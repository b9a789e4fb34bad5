"""Reading a request's body: limits before and after decompression, a deadline, and its media type.

Promises: at most `limits.body_bytes` are ever held, compressed or not, announced or chunked; a body that does not come in time is a 408;
what cannot be decoded is a 4xx that says where. Decompression is done here and not by aiohttp, so that the limit holds for each half.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from aiohttp import web

from hetsched.api.packed import unpack
from hetsched.api.problem import plain
from hetsched.errors import Problem, TooLarge
from hetsched.model import parse_json
from hetsched.model.reader import Faults, below, unknown

JSON, NDJSON, MSGPACK = "application/json", "application/x-ndjson", "application/msgpack"

T = TypeVar("T")


async def read_body(request: web.Request, limit_bytes: int, deadline_s: float) -> bytes:
    """The body, decompressed; TooLarge, or a Problem of status 400, 408 or 415."""
    announced = request.content_length
    if announced is not None and announced > limit_bytes:
        raise too_large(limit_bytes)
    try:
        async with asyncio.timeout(deadline_s):
            raw = await _read(request, limit_bytes)
    except TimeoutError:
        raise plain(
            408, "deadline", "The request came too slowly", f"its body was not there after {deadline_s:g} s"
        ) from None
    except web.RequestPayloadError as error:
        raise Problem(f"the body cannot be read: {error}", code="malformed") from None
    return _decompress(raw, request.headers.get("Content-Encoding", "identity"), limit_bytes)


async def _read(request: web.Request, limit_bytes: int) -> bytes:
    pieces, size = [], 0
    async for piece in request.content.iter_any():
        size += len(piece)
        if size > limit_bytes:
            raise too_large(limit_bytes)
        pieces.append(piece)
    return b"".join(pieces)


def _decompress(raw: bytes, encoding: str, limit_bytes: int) -> bytes:
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return raw
    if encoding not in ("gzip", "deflate"):
        raise Problem(
            f"Content-Encoding {encoding!r} is not understood; gzip and deflate are", code="unsupported_media"
        )
    inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32 if encoding == "gzip" else zlib.MAX_WBITS)
    try:
        body = inflate.decompress(raw, limit_bytes + 1)
    except zlib.error as error:
        raise Problem(f"the body is no {encoding}: {error}", code="malformed") from None
    if len(body) > limit_bytes:
        raise too_large(limit_bytes)
    if not inflate.eof:
        raise Problem(f"the body is {encoding} cut short", code="malformed")
    return body


def too_large(limit_bytes: int) -> TooLarge:
    """Over `limits.body_bytes`."""
    return TooLarge(f"a body may have {limit_bytes} bytes (limits.body_bytes), before and after decompression")


# ---------------------------------------------------------------------- media types


def media_type(request: web.Request, allowed: tuple[str, ...]) -> str:
    """The media type of the body, one of `allowed`; Problem 415 names them."""
    return media_of(request.headers.get("Content-Type", ""), allowed)


def media_of(header: str, allowed: tuple[str, ...]) -> str:
    """The same of the header's value."""
    name, _, parameters = header.partition(";")
    name = name.strip().lower()
    charset = parameters.lower().replace(" ", "").replace('"', "").partition("charset=")[2].partition(";")[0]
    if name not in allowed:
        said = f"Content-Type {name!r}" if name else "a body without Content-Type"
        raise Problem(f"{said} is not understood here; send {' or '.join(allowed)}", code="unsupported_media")
    if charset not in ("", "utf-8", "utf8", "us-ascii"):
        raise Problem(f"charset {charset!r} is not understood; send UTF-8", code="unsupported_media")
    return name


def decode(body: bytes, media: str) -> Any:
    """Plain values of a body; a Problem says what is wrong and where."""
    if media == NDJSON:
        return list(_lines(body))
    if media == MSGPACK:
        return unpack(body)
    return parse_json(body)


def _lines(body: bytes) -> Iterator[Any]:
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            yield parse_json(line)
        except Problem as problem:
            raise Problem(
                f"line {number}: {problem.detail}", errors=problem.under(f"/{number - 1}").errors, code=problem.code
            ) from None


# ---------------------------------------------------------------------- small bodies


def typed(value: Any, shape: type[T]) -> T:
    """`value` as a Struct; Problem 422 with the pointer of the fault."""
    if not isinstance(value, dict):
        raise Problem.at("", "the body has to be an object")
    faults = Faults()
    _note_unknown(faults, "", value, shape)
    if faults:
        raise faults.problem()
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `")
        pointer = path.rstrip("`").removeprefix("$").replace("[", "/").replace("]", "").replace(".", "/")
        _, is_missing, field = text.partition("missing required field `")
        if is_missing:
            raise Problem.at(f"{pointer}/{field.rstrip('`')}", "is required") from None
        raise Problem.at(pointer, text[:1].lower() + text[1:]) from None


def _note_unknown(faults: Faults, at: str, value: dict[Any, Any], shape: Any) -> None:
    """Fields that the Struct does not have, or one of a list of Structs in it."""
    known = {field.name: field.type for field in msgspec.structs.fields(shape)}
    for key, inner in value.items():
        if key not in known:
            faults.add(below(at, key), unknown(key, known))
        elif isinstance(inner, list) and get_origin(known[key]) is list:
            (one,) = get_args(known[key])
            for index, entry in enumerate(inner) if isinstance(one, type) and issubclass(one, msgspec.Struct) else ():
                if isinstance(entry, dict):
                    _note_unknown(faults, f"{below(at, key)}/{index}", entry, one)
