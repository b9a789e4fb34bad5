"""A frame that was touched is never taken for a whole one, and the refusal names frame, byte and reason."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from hetsched.store.base import START, JournalCorrupt, NewerVersion, Position
from hetsched.store.frame import MAX_PAYLOAD_BYTES, OVERHEAD_BYTES, Frame, decode, encode, follow


def chain(*payloads: bytes, epoch: int = 3) -> list[Frame]:
    frames: list[Frame] = []
    for payload in payloads:
        frames.append(encode(epoch, frames[-1].position if frames else START, payload))
    return frames


def test_a_frame_holds_its_place_and_its_payload() -> None:
    first, second = chain(b"one", b"two" * 1000)
    assert follow(START, "3-1", first.data) == (first.position, b"one")
    assert follow(first.position, "3-2", second.data) == (second.position, b"two" * 1000)
    assert second.position[:2] == (3, 2)
    assert len(first.data) == len(b"one") + OVERHEAD_BYTES


def test_every_flipped_bit_of_every_byte_is_noticed() -> None:
    data = encode(7, Position(6, 41, 0xDEADBEEF), b"placed t1 on a100-0").data
    for index in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[index] ^= 1 << bit
            with pytest.raises(JournalCorrupt):
                decode(bytes(damaged), "7-42")


def test_every_cut_and_every_addition_is_noticed() -> None:
    data = encode(7, Position(6, 41, 5), b"placed t1 on a100-0").data
    for length in range(len(data)):
        with pytest.raises(JournalCorrupt):
            decode(data[:length], "7-42")
    with pytest.raises(JournalCorrupt):
        decode(data + b"\0", "7-42")


def test_the_refusal_names_frame_byte_and_reason() -> None:
    data = bytearray(encode(7, Position(6, 41, 5), b"placed").data)
    data[-1] ^= 1
    with pytest.raises(JournalCorrupt) as caught:
        decode(bytes(data), "7-42")
    assert caught.value.where == "7-42"
    assert caught.value.offset == len(data) - 4
    assert "7-42, byte 38: checksum" in str(caught.value)


def test_a_newer_version_is_named_and_told_from_a_damaged_one() -> None:
    data = bytearray(chain(b"x")[0].data)
    data[4] = 2
    with pytest.raises(JournalCorrupt, match="version is 2, and the checksum does not match") as damaged:
        decode(bytes(data), "3-1")
    newer = bytes(data[:-4]) + crc32c(data[:-4]).to_bytes(4, "little")
    with pytest.raises(NewerVersion, match="version 2; this program reads 1"):
        decode(newer, "3-1")
    assert not isinstance(damaged.value, NewerVersion)


@pytest.mark.parametrize(
    ("story", "previous", "where", "index"),
    [
        ("a frame in between is missing", 0, "3-3", 2),
        ("a frame comes twice", 1, "3-2", 1),
        ("a frame lies under another's id", 0, "3-9", 1),
    ],
)
def test_a_frame_out_of_its_place_is_refused(story: str, previous: int, where: str, index: int) -> None:
    frames = chain(b"a", b"b", b"c")
    with pytest.raises(JournalCorrupt):
        follow(frames[previous].position, where, frames[index].data)


def test_a_frame_from_another_history_is_refused_though_it_is_whole() -> None:
    ours, theirs = chain(b"a", b"b"), chain(b"A", b"b")
    with pytest.raises(JournalCorrupt, match="follows a frame with checksum"):
        follow(ours[0].position, "3-2", theirs[1].data)


def test_an_epoch_never_goes_back() -> None:
    newer = encode(5, START, b"a")
    older = encode(4, newer.position, b"b")
    with pytest.raises(JournalCorrupt, match="epoch goes back"):
        follow(newer.position, "4-2", older.data)


@pytest.mark.parametrize("payload", [b"", bytes(MAX_PAYLOAD_BYTES + 1)])
def test_nothing_and_too_much_are_no_frames(payload: bytes) -> None:
    with pytest.raises(ValueError, match="a frame holds"):
        encode(1, START, payload)
