"""Blocks, gathered records and results are bounded in bytes, however many or few records they hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Types
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream.functions import KeyedProcessFunction, ProcessFunction
from millstream.errors import JobFailedError
from millstream.records.batch import Batch
from millstream.runtime.exchange import blocks
from millstream.runtime.exchange.blocks import BlockPacker, decode_block
from millstream.runtime.operators import function_operators, keyed_operator
from millstream.testing import Collect, Script, run

KIB = 1 << 10


def pack(packer: BlockPacker, batches: list[Batch]) -> list[tuple[Any, int]]:
    blocks = [block for batch in batches for block in packer.add(batch)]
    return [*blocks, *packer.rest()]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 3_000), max_size=60), max_size=6), st.booleans())
def test_no_block_is_much_larger_than_its_bound_unless_a_record_is(sizes: list[list[int]], typed: bool) -> None:
    bound, type_info = 4 * KIB, Types.STRING() if typed else None
    batches = [Batch.of_values(["x" * size for size in part], type_info) for part in sizes if part]
    blocks = pack(BlockPacker(bound, 1_000, 1_000), batches)
    assert all(block.size <= 4 * bound + 4 * KIB for block, _ in blocks)
    values = [value for block, _ in blocks for batch in decode_block(block, type_info) for value in batch.values()]
    assert values == ["x" * size for part in sizes for size in part]
    assert sum(records for _, records in blocks) == len(values)


def test_a_packer_of_untyped_records_learns_their_size() -> None:
    packer = BlockPacker(4 * KIB, 100_000, 100_000)
    pack(packer, [Batch.of_values([f"{n:1024d}" for n in range(4)], None)])
    blocks = pack(packer, [Batch.of_values([f"{n:1024d}"], None) for n in range(40)])
    assert max(block.size for block, _ in blocks) <= 8 * KIB


@pytest.mark.parametrize("type_info", [Types.STRING(), None], ids=["typed", "untyped"])
def test_a_record_too_large_for_a_block_is_rejected_with_its_operator_and_size(
    type_info: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES_MAX", 100 * KIB)

    def build(env: StreamExecutionEnvironment) -> None:
        texts = env.add_source(Script([1, 200])).map(lambda n: "x" * (n * KIB), type_info).name("enlarge")
        texts.rebalance().sink_to(Collect())

    with pytest.raises(JobFailedError, match=r"(?s)enlarge.*a record takes 20\d,\d\d\d bytes, and at most 102,400"):
        run(build, parallelism=2)


class Many(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        return ["x" * KIB] * 100


class ManyOfAKey(KeyedProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        return ["x" * KIB] * 100


EXPANDING: dict[str, Any] = {
    "flat_map": lambda s, t: s.flat_map(lambda n: ["x" * KIB] * 100, t),
    "process": lambda s, t: s.process(Many(), t),
    "keyed flat_map": lambda s, t: s.key_by(lambda n: n % 7, Types.LONG()).flat_map(lambda n: ["x" * KIB] * 100, t),
    "keyed process": lambda s, t: s.key_by(lambda n: n % 7, Types.LONG()).process(ManyOfAKey(), t),
}


@pytest.mark.parametrize("type_info", [Types.STRING(), None], ids=["typed", "untyped"])
@pytest.mark.parametrize("name", EXPANDING)
def test_results_are_sent_downstream_in_batches_of_bounded_bytes(
    name: str, type_info: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 records of which each emits 100 KiB: about 100 MB in all, of which 2 MiB may be held at once."""
    monkeypatch.setattr(function_operators, "_RESULT_BYTES", 2 << 20)
    monkeypatch.setattr(function_operators, "_FIRST_RECORDS", 4)
    sizes: list[int] = []
    learn = function_operators.Pieces.learn

    def counted(self: function_operators.Pieces, records: int, size: int) -> None:
        sizes.append(size)
        learn(self, records, size)

    monkeypatch.setattr(function_operators.Pieces, "learn", counted)
    lengths = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        numbers: DataStream = env.add_source(Script(list(range(1_000)), type_info=Types.LONG()))
        EXPANDING[name](numbers, type_info).filter(lambda text: False).sink_to(lengths)

    run(build)
    assert sum(size for size in sizes if size >= KIB) >= 1_000 * 100 * KIB
    assert max(sizes) <= 4 << 20


def test_untyped_records_are_gathered_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_operator, "_GATHERED_BYTES_MAX", 64 * KIB)
    gathered: list[int] = []
    concat = Batch.concat.__func__  # type: ignore[attr-defined]

    def counted(cls: type[Batch], batches: list[Batch]) -> Batch:
        gathered.append(sum(len(value["text"]) for batch in batches for value in batch.values()))
        return concat(cls, batches)  # type: ignore[no-any-return]

    monkeypatch.setattr(Batch, "concat", classmethod(counted))

    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.add_source(Script(list(range(200)))).map(lambda n: {"n": n, "text": f"{n:65536d}"})
        rows.key_by(lambda row: row["n"] % 5).process(ManyOfAKey()).sink_to(Collect())

    run(build)
    # All would be 12.5 MiB. Records arrive in blocks of about 4 MiB, and one block is enough for a batch.
    assert sum(gathered) == 200 * 64 * KIB and max(gathered) <= 9 << 20
