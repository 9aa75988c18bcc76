"""Large manifests are compressed to a tenth of the bytes; they read back equal and every damage is detected."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.checkpoint import manifest_bytes
from millstream.checkpoint.manifest import FORMAT, Manifest, SplitFile, SplitPosition, decode, encode
from millstream.errors import StoreDamagedError
from millstream.storage.names import manifest_name

YESTERDAY = Path(__file__).parents[2] / "compatibility" / "manifest-3.json"
NAME = manifest_name(7)


def _segment(subtask: int) -> dict[str, object]:
    return {"file": f"segments/count/total/000000000007-{subtask:05d}-a1t7n{subtask}.arrow", "rows": subtask * 31 % 97}


WIDE = Manifest(
    job="clicks",
    job_id="5d1f",
    epoch=7,
    parent=6,
    created_ms=1_700_000_000_000,
    run="a1",
    sources={"in": {str(number): SplitPosition(offset=number * 7919) for number in range(300)}},
    states={"count": {"subtasks": {str(subtask): [_segment(subtask)] for subtask in range(600)}}},
    finished={"in": (SplitFile("splits/in/1.json", 3, "ab"),)},
)
PACKED = encode(WIDE)


def _sealed(body: bytes) -> bytes:
    return body + f',\n "checksum": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode()


def test_a_large_manifest_is_compressed_and_reads_back_equal() -> None:
    assert PACKED.startswith(b'{"format": "millstream-manifest-3", ')
    assert len(PACKED) < len(json.dumps(json.loads(_decompressed(PACKED)))) / 5
    assert decode(PACKED, NAME) == WIDE
    assert encode(decode(PACKED, NAME)) == PACKED


def test_a_small_manifest_stays_readable_text() -> None:
    small = Manifest(job="clicks", job_id="5d1f", epoch=7, parent=6, created_ms=0, run="a1")
    assert encode(small).startswith(b'{\n "format": "millstream-manifest-1",\n')


def test_equal_large_manifests_are_equal_bytes_for_any_order_of_their_keys() -> None:
    backwards = {"count": {"subtasks": dict(reversed(list(WIDE.states["count"]["subtasks"].items())))}}
    fields = {**vars(WIDE), "states": backwards}
    assert encode(Manifest(**{name: fields[name] for name in Manifest.__dataclass_fields__})) == PACKED


def test_a_compressed_manifest_of_an_older_version_is_readable() -> None:
    data = YESTERDAY.read_bytes()
    assert decode(data, YESTERDAY.name) == WIDE
    # If this fails, the format has changed: increment it, continue to read the old one, add a new fixture.
    assert _decompressed(PACKED) == _decompressed(data)


def _decompressed(data: bytes) -> bytes:
    packed = data.partition(b"\n")[2]
    return gzip.decompress(packed[: packed.rindex(b',\n "checksum": ')])


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data())
def test_every_flipped_bit_of_a_compressed_manifest_is_detected(data: st.DataObject) -> None:
    written = bytearray(PACKED)
    place = data.draw(st.integers(0, 60) | st.integers(0, len(written) - 1))
    written[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(StoreDamagedError, match=NAME):
        decode(bytes(written), NAME)


@given(st.integers(0, len(PACKED) - 1))
def test_every_truncation_of_a_compressed_manifest_is_detected(length: int) -> None:
    with pytest.raises(StoreDamagedError, match=NAME):
        decode(PACKED[:length], NAME)


@pytest.mark.parametrize(
    "head, body, message",
    [
        (b', "bytes": 3,\n', gzip.compress(b"{}", mtime=0), "does not unpack to the 3 bytes"),
        (b', "bytes": 1,\n', gzip.compress(b"{}", mtime=0), "does not unpack to the 1 bytes"),
        (b', "bytes": 2,\n', gzip.compress(b"{}", mtime=0) + b"more", "does not unpack to the 2 bytes"),
        (b', "bytes": 2,\n', gzip.compress(b"{}", mtime=0)[:-1], "does not unpack to the 2 bytes"),
        (b', "bytes": 9999999999,\n', gzip.compress(b"{}", mtime=0), "unpacks to 9999999999 bytes, expected 1073741"),
        (b', "bytes": 2,\n', b"no gzip", "incorrect header check"),
        (b', "job": "clicks"', b"", "its first line does not say how long it is"),
        (b', "bytes": 100000,\n', gzip.compress(b"[" * 100_000, mtime=0), "Error"),
        (b', "bytes": 2,\n', gzip.compress(b"[]", mtime=0), "breaks the format"),
    ],
)
def test_a_forged_compressed_manifest_is_damage_and_expands_to_its_declared_size_at_most(
    head: bytes, body: bytes, message: str
) -> None:
    with pytest.raises(StoreDamagedError, match=message):
        decode(_sealed(b'{"format": "millstream-manifest-3"' + head + body), NAME)


def test_the_compressed_format_is_the_newest_format() -> None:
    assert manifest_bytes.PACKED == FORMAT == 3
