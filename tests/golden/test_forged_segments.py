"""Segments with valid checksums and invalid content, which anyone with write access to a store can make.

A reader, a query and `verify` report the file as damaged; none of them fails with a Python error, or crashes the
process, as Arrow does on an out-of-bounds offset.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inputs.bombs import laid_out

from millstream import query, state_reader
from millstream.errors import MillstreamError, StoreDamagedError
from millstream.query.errors import KeyTypeError
from millstream.state.stored.accounts import ListEntry
from millstream.state.stored.operator_lists import Slice, column_of
from millstream.state_reader.verifying import verify
from millstream.storage import open_store

OPENING = b'{"format":"millstream-segment-'
NO_CRC = b'"tail_crc32":"00000000"'
Document = dict[str, Any]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forged")
    return laid_out(folder / "store", folder / "marker", epochs=1)


@pytest.fixture
def segment(whole: Path) -> Iterator[Path]:
    """A segment of the state `typed`, which is restored afterwards."""
    (file,) = whole.glob("segments/keeper/typed/000000000001-*.arrow")
    content = file.read_bytes()
    yield file
    file.write_bytes(content)


def forge(file: Path, change: Callable[[Document, bytearray], None]) -> None:
    """Change the footer, or bytes of chunks, and recompute all checksums."""
    data = bytearray(file.read_bytes())
    at = data.rfind(OPENING)
    document, size = json.JSONDecoder().raw_decode(data[at:].decode("latin-1"))
    room = size + len(data[at + size :]) - len(data[at + size :].lstrip(b" "))
    tail_start = sum(document["chunks"][-1][:2])
    change(document, data)
    document["tail_crc32"] = "00000000"
    data[at : at + room] = json.dumps(document, separators=(",", ":")).encode().ljust(room)
    tail = bytes(data[tail_start:])
    file.write_bytes(data[:tail_start] + tail.replace(NO_CRC, b'"tail_crc32":"%08x"' % zlib.crc32(tail), 1))


def assert_damaged(store: Path) -> None:
    with pytest.raises(StoreDamagedError, match="damaged"):
        state_reader.open(f"{store}@1").at().read("keeper", "typed").to_pylist()
    with pytest.raises(MillstreamError), query.open(str(store)).at(epoch=1) as view:
        view.get("typed", "a")
    assert "typed" in verify(f"{store}@1").text()


ODD: tuple[Any, ...] = (None, "x", 1.5, -1, 1 << 64, [], {}, True)
TOP = ("state", "epoch", "groups", "layout", "rows", "head_crc32")


@pytest.mark.parametrize("part", TOP)
def test_a_footer_with_a_wrong_value_is_damaged(part: str, whole: Path, segment: Path) -> None:
    content = segment.read_bytes()
    for odd in ODD:
        if part == "state" and isinstance(odd, str):
            continue  # a valid name
        forge(segment, lambda document, _, odd=odd: document.update({part: odd}))  # type: ignore[misc]
        assert_damaged(whole)
        segment.write_bytes(content)


@pytest.mark.parametrize("place", [2, 3, 4, 5])
def test_an_invalid_chunk_entry_is_damaged(place: int, whole: Path, segment: Path) -> None:
    content = segment.read_bytes()
    for odd in (None, "x", 1.5, -1, []):
        forge(segment, lambda document, _, odd=odd: document["chunks"][0].__setitem__(place, odd))  # type: ignore[misc]
        assert_damaged(whole)
        segment.write_bytes(content)


@pytest.mark.parametrize("part", ["key", "sub", "value", "pickled", "due", "ttl", "max_parallelism"])
def test_a_footer_with_other_columns_than_the_data_is_damaged(part: str, whole: Path, segment: Path) -> None:
    content = segment.read_bytes()
    for odd in ("x", True, 7.5):
        forge(segment, lambda document, _, odd=odd: document["layout"].update({part: odd}))  # type: ignore[misc]
        assert_damaged(whole)
        segment.write_bytes(content)


def test_an_out_of_bounds_text_is_damage_and_does_not_crash_the_process(whole: Path, segment: Path) -> None:
    def point_beyond(document: Document, data: bytearray) -> None:
        offset, length = document["chunks"][0][:2]
        chunk = pa.py_buffer(bytes(data[offset : offset + length]))
        keys = pa.ipc.open_stream(chunk.slice(8)).read_next_batch().column("key")
        start = offset + keys.buffers()[1].address - chunk.address
        data[start + 4 : start + 8] = (1 << 30).to_bytes(4, "little")
        document["chunks"][0][2] = zlib.crc32(bytes(data[offset : offset + length]))

    forge(segment, point_beyond)
    assert_damaged(whole)


def test_a_chunk_with_a_schema_of_its_own_is_damaged(whole: Path, segment: Path) -> None:
    def rename(document: Document, data: bytearray) -> None:
        offset, length = document["chunks"][0][:2]
        at = data.index(b"rest", offset, offset + length)
        data[at : at + 4] = b"rust"
        document["chunks"][0][2] = zlib.crc32(bytes(data[offset : offset + length]))

    forge(segment, rename)
    assert_damaged(whole)


@pytest.mark.parametrize("lie", ["beyond memory", "no Arrow", "no column"])
def test_an_inconsistent_operator_list_is_damaged(lie: str) -> None:
    columns = {"item": pa.array(["a", "b"])} if lie != "no column" else {}
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = bytearray(sink.getvalue().to_pybytes() if lie != "no Arrow" else b"no Arrow")
    if lie == "beyond memory":
        at = data.index(b"".join(number.to_bytes(4, "little") for number in (0, 1, 2)))
        data[at + 4 : at + 8] = (1 << 30).to_bytes(4, "little")
    digest, inline = hashlib.sha256(data).hexdigest(), base64.b64encode(data).decode()
    entry = ListEntry("split", "string", 2, len(data), digest, inline)
    with pytest.raises(StoreDamagedError, match="buffer"):
        column_of([(entry, Slice(0, 0, 2))], open_store("memory://test-forged-lists"), "list 'buffer'")


def test_a_key_column_with_an_unknown_time_zone_is_rejected(whole: Path) -> None:
    times = pa.array([1], pa.timestamp("s", tz="Mars/Phobos"))
    with pytest.raises(KeyTypeError, match="Mars/Phobos"):
        query.open(str(whole), allow_undeclared=True).newest().get_columns(("by name", "result"), times)
