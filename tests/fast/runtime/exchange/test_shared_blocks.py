"""Large blocks between tasks of one machine are files: only a reference crosses the exchange, the receiver decodes the
same block, and a missing or truncated file is never read as fewer records.
"""

from __future__ import annotations

import struct
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.common.typeinfo import Types
from millstream.graph.nodes import Edge, Partitioning
from millstream.plan.stages import Channel
from millstream.records.batch import Batch
from millstream.runtime.exchange.blocks import ALIGNED, Outbox, decode_block, encode_block
from millstream.runtime.exchange.messages import open_envelopes, seal
from millstream.runtime.exchange.routing import router_for
from millstream.runtime.exchange.shared_blocks import (
    SHARED_BYTES_MIN,
    BrokenExchangeError,
    SharedBlocks,
    resolve_block,
    shared_block_folder,
)
from millstream.runtime.operators.user_code import UserCall

LARGE = pa.py_buffer(bytes(range(256)) * 512)


def _note(folder: Path, attempt: str) -> pa.Buffer:
    note = SharedBlocks(str(folder), attempt).share(LARGE.size, lambda file: file.write(LARGE))
    assert note is not None
    return note


def _sent(folder: Path | str, count: int) -> list[pa.Buffer]:
    """The payloads that a task sends on a channel, as they leave the shuffle."""
    edge = Edge(source=0, partitioning=Partitioning.GLOBAL)
    channel = Channel(0, 0, 1, edge, senders=1, receivers=1, key_groups=1, source_stage=0, target_stage=1)
    call = UserCall("test", "uid", "")
    outbox = Outbox(1, 0, 4 << 20, SharedBlocks(str(folder), "attempt"))
    columns = pa.record_batch([pa.array(range(count), pa.int64())], names=["value"])
    outbox.send(channel, router_for(channel, 0, 1, call), call, Batch.of_columns(columns, Types.LONG()))
    outbox.flush()
    return [envelope.payload for sent in outbox.ready() for envelope in open_envelopes(seal([sent]))]


@pytest.mark.parametrize("count", [50_000, 200_000])  # read, mapped
def test_a_large_block_crosses_the_exchange_as_a_reference(tmp_path: Path, count: int) -> None:
    notes = _sent(tmp_path, count)
    assert all(note.size < 1_000 for note in notes) and len(list(tmp_path.iterdir())) == len(notes)
    batches = [batch for note in notes for batch in decode_block(resolve_block(note), Types.LONG())]
    assert [value for batch in batches for value in batch.values()] == list(range(count))


def test_a_small_block_is_sent_inline(tmp_path: Path) -> None:
    [block] = _sent(tmp_path, 10)
    assert not list(tmp_path.iterdir()) and resolve_block(block).equals(block)
    [batch] = decode_block(resolve_block(block), Types.LONG())
    assert list(batch.values()) == list(range(10))


@pytest.mark.parametrize("folder", ["", "/no/such/folder"])
def test_without_a_folder_or_disk_space_blocks_are_sent_inline(folder: str) -> None:
    [block] = _sent(folder, 50_000)
    [batch] = decode_block(resolve_block(block), Types.LONG())
    assert block.size > 8 * 50_000 and list(batch.values()) == list(range(50_000))


def test_two_attempts_of_a_task_share_no_file(tmp_path: Path) -> None:
    notes = [_note(tmp_path, attempt) for attempt in ("a", "b")]
    assert len(list(tmp_path.iterdir())) == 2 and not notes[0].equals(notes[1])


def test_a_block_that_was_opened_outlives_its_file(tmp_path: Path) -> None:
    block = resolve_block(_note(tmp_path, "a"))
    for file in tmp_path.iterdir():
        file.unlink()
    assert block.equals(LARGE)


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_missing_or_truncated_file_breaks_the_exchange(tmp_path: Path, is_missing: bool) -> None:
    note = _note(tmp_path, "a")
    [file] = tmp_path.iterdir()
    if is_missing:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: SHARED_BYTES_MIN // 2])
    with pytest.raises(BrokenExchangeError, match="the epoch is run again"):
        resolve_block(note)


def test_a_task_that_outlives_its_epoch_leaves_no_block(tmp_path: Path) -> None:
    for turn in range(20):
        folder = tmp_path / f"blocks-{turn}"

        def lay_on(folder: Path = folder) -> None:
            shared = SharedBlocks(str(folder), "attempt")
            while shared.share(SHARED_BYTES_MIN, lambda file: file.write(bytes(SHARED_BYTES_MIN))) is not None:
                pass

        task = threading.Thread(target=lay_on)
        with shared_block_folder(str(folder)):
            task.start()
            while not any(folder.iterdir()):
                pass
        task.join()
        assert not list(tmp_path.iterdir())


def test_records_with_the_prefix_of_a_reference_open_no_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(64))
    name = str(secret).encode()
    note = struct.pack("<8sqi", bytes(7) + b"@", 64, len(name)) + name
    for info in (None, Types.PRIMITIVE_ARRAY(Types.BYTE())):
        for shared in (None, SharedBlocks(str(tmp_path), "a")):
            block = encode_block([Batch.of_values([note], info)], ALIGNED, shared)
            assert resolve_block(block).equals(block)
            (batch,) = decode_block(resolve_block(block), info)
            assert batch.values() == [note]
