"""A dump of a build with other records: read by name, or refused with the name of what is in the way."""

import json
import re
import struct
import zlib
from pathlib import Path

import pytest

from hetsched._core import Core

from .test_random_worlds import Chaos

CORE = Path(__file__).parents[2] / "hetsched"
CODES = {"i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q"}
STRUCTS = {
    "scalars": "Scalars",
    "age": "AgeClass",
    "tasks": "TaskRecord",
    "allocations": "AllocationRecord",
    "nodes": "NodeRecord",
    "devices": "DeviceRecord",
    "ask": "AskRecord",
    "shapes": "ShapeRecord",
    "queues": "QueueRecord",
    "slots": "Slots",
    "gangs": "GangRecord",
    "evictions": "EvictionRecord",
    "templates": "TemplateRecord",
    "expectations": "ExpectationRecord",
}


class Dump:
    """A dump taken apart with Python's own `struct`, to be changed and put together again."""

    def __init__(self, data: bytes) -> None:
        header, *rest = _unpacked(data[8:-4])
        self.header = json.loads(header)
        self.layout = self.header["layout"]
        self.sections = dict(zip(self.header["sections"], rest, strict=True))

    def code(self, record: str) -> str:
        """The record for `struct`; native alignment is that of C, a record ends at a multiple of its widest."""
        inner = ""
        for word in self.layout[record].split():
            kind, _, count = word.partition(":")[2].partition("=")[0].partition("*")
            inner += (CODES[kind] if kind in CODES else self.code(kind)) * int(count or 1)
        return inner + "0q" if "q" in inner.lower() else inner

    def relay(self, record: str, words: list[str], values: dict[str, list[int]] | None = None) -> None:
        """The same table with these fields, in this order. `values`: of fields that were not there, or had others."""
        old_words, old = self.layout[record].split(), list(struct.iter_unpack(self.code(record), self.sections[record]))
        self.layout[record] = " ".join(words)
        code, rows = self.code(record), []
        for at, numbers in enumerate(old):
            spans, begin = {}, 0
            for word in old_words:
                spans[_name(word)] = numbers[begin : begin + self.width(word)]
                begin += self.width(word)
            spans |= {_name(word): (column[at],) for word, column in (values or {}).items()}
            rows.append(struct.pack(code, *[number for word in words for number in spans[_name(word)]]))
        self.sections[record] = b"".join(rows)

    def width(self, word: str) -> int:
        """Numbers in a field."""
        kind, _, count = word.partition(":")[2].partition("=")[0].partition("*")
        return int(count or 1) * (1 if kind in CODES else sum(self.width(one) for one in self.layout[kind].split()))

    def data(self) -> bytes:
        """As an older or newer build would have written it."""
        self.header["sections"] = list(self.sections)
        self.header["written_by"] = "9.9"
        body = b"hetcore5" + _packed([json.dumps(self.header).encode(), *self.sections.values()])
        return body + zlib.crc32(body).to_bytes(4, "little")


def _unpacked(data: bytes) -> list[bytes]:
    sections, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        sections.append(data[at + 8 : at + 8 + length])
        at += 8 + length
    return sections


def _packed(sections: list[bytes]) -> bytes:
    return b"".join(len(section).to_bytes(8, "little") + section for section in sections)


def _name(word: str) -> str:
    return word.partition(":")[0].lstrip("-")


def busy_world(seed: int = 3) -> Core:
    """Nodes, gangs, claims, retries: every table has something in it."""
    chaos = Chaos(seed)
    for _ in range(200):
        chaos.step()
    return chaos.core


def test_a_dump_that_lies_here_since_0_1_0_is_still_read() -> None:
    """Written once and never again: whatever becomes of the records, a cluster that was stopped then has to go on."""
    golden = Path(__file__).parent / "golden"
    loaded = Core.load(zlib.decompress((golden / "dump-0.1.0.z").read_bytes()), checked=True)
    said = json.loads((golden / "dump-0.1.0.json").read_text())
    assert loaded.counts() == said["counts"]
    rows = [loaded.task(slot) for slot in loaded.page(0, 1 << 30, 0xFFE)]
    assert [[row.key.decode(), row.state, row.attempt, row.priority, row.submitted_ns] for row in rows] == said["tasks"]
    assert loaded.oscillations() == said["oscillations"]


def test_what_is_said_of_every_record_is_what_the_record_is() -> None:
    declared = (CORE / "_core.pxd").read_text() + (CORE / "_core" / "whole.pxi").read_text()
    constants = dict(re.findall(r"^    ([A-Z_]+) = (\d+)", declared, re.M))
    layout = Dump(Core().dump()).layout
    for record, structure in STRUCTS.items():
        body = re.search(rf"cdef struct {structure}:\n((?:    .*\n|\n(?=    ))+)", declared)
        assert body, structure
        said = [(_name(word), word.partition(":")[2].partition("=")[0]) for word in layout[record].split()]
        assert said == list(_declared(body[1], constants)), structure


def _declared(body: str, constants: dict[str, str]) -> list[tuple[str, str]]:
    kinds = {"Slots": "slots", "AskRecord": "ask", "AgeClass": "age"}
    fields = []
    for line in body.splitlines():
        kind, _, names = line.partition("#")[0].strip().partition(" ")
        for name in filter(None, names.strip().split(", ")):
            word = kinds.get(kind) or kind[0] + str(int(re.sub(r"\D", "", kind)) // 8)
            word = "u8" if kind.endswith("*") else word
            found = re.fullmatch(r"(\w+)\[(\w+)\]", name)
            count = f"*{constants.get(found[2], found[2])}" if found else ""
            fields.append((found[1] if found else name, word + count))
    return fields


@pytest.mark.parametrize("seed", range(4))
def test_a_dump_with_other_records_loads_as_the_same_state_and_goes_on_alike(seed: int) -> None:
    core = busy_world(seed)
    dump = Dump(core.dump())
    for record, words in list(dump.layout.items()):
        if record in dump.sections:
            dump.relay(record, [*reversed(words.split())])  # every field somewhere else
    loaded = Core.load(dump.data(), checked=True)
    assert loaded.digest() == core.digest()
    assert loaded.dump() == core.dump()


def test_wider_and_narrower_numbers_find_their_place() -> None:
    core = busy_world()
    dump = Dump(core.dump())
    widened = {
        "priority:i2": "priority:i4",
        "sequence:u8": "sequence:u4",
        "queue:u2": "queue:u8",
        "flags:u1": "flags:u2",
    }
    dump.relay("tasks", [widened.get(word, word) for word in dump.layout["tasks"].split()])
    assert Core.load(dump.data(), checked=True).dump() == core.dump()


def test_a_number_that_does_not_fit_is_refused_by_name_and_version() -> None:
    dump = Dump(busy_world().dump())
    words = [word for word in dump.layout["tasks"].split() if word != "priority:i2"]
    tasks = len(dump.sections["tasks"]) // 64
    dump.relay("tasks", [*words, "priority:i4"], {"priority:i4": [40_000] * tasks})
    with pytest.raises(ValueError, match=r"tasks\.priority of hetsched 9\.9 does not fit any more; 9\.9 reads it"):
        Core.load(dump.data())


def test_a_field_that_the_dump_lacks_has_its_default() -> None:
    core = busy_world()
    dump = Dump(core.dump())
    dump.relay("devices", [word for word in dump.layout["devices"].split() if not word.startswith("nvlink")])
    del dump.sections["evictions"]
    loaded = Core.load(dump.data())
    told = Dump(loaded.dump())
    assert told.sections["evictions"] == b""
    assert told.sections["tasks"] == Dump(core.dump()).sections["tasks"]
    assert loaded.counts() == core.counts()


def test_a_field_that_only_the_dump_has_must_say_nothing() -> None:
    core = busy_world()
    for value, is_read in ((7, True), (8, False)):
        dump = Dump(core.dump())
        tasks = len(dump.sections["tasks"]) // 64
        dump.relay("tasks", [*dump.layout["tasks"].split(), "colour:u2=7"], {"colour:u2=7": [value] * tasks})
        if is_read:
            assert Core.load(dump.data()).dump() == core.dump()
        else:
            with pytest.raises(
                ValueError, match=r"tasks\.colour of hetsched 9\.9 means nothing to this version; 9\.9 reads it"
            ):
                Core.load(dump.data())


def test_a_sort_of_number_that_nobody_knows_is_refused_with_a_sentence() -> None:
    dump = Dump(Core().dump())
    dump.layout["tasks"] += " share:f8"
    with pytest.raises(ValueError, match=r"tasks\.share is of a sort \(f8\)"):
        Core.load(dump.data())


def test_a_table_that_only_the_dump_has_must_be_empty() -> None:
    core = busy_world()
    dump = Dump(core.dump())
    dump.sections["reservations"] = b""
    assert Core.load(dump.data()).dump() == core.dump()
    dump.sections["reservations"] = b"something"
    with pytest.raises(ValueError, match=r"reservations of hetsched 9\.9"):
        Core.load(dump.data())
