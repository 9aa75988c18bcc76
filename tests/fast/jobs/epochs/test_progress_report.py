"""The progress board's fields from a manifest: the size of the state, and the watermark."""

from __future__ import annotations

import itertools
from typing import Any

from millstream.common import Types, WatermarkStrategy
from millstream.compiler.passes import compile_graph
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.jobs.epochs.progress_report import StateSize, state_size, total_progress
from millstream.testing import EPOCH, Collect, Result, Script, run

_STORES = itertools.count()


class Last(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> None:
        self.last.update(value)


def build(script: Script, env: StreamExecutionEnvironment, at_ms: int | None = None) -> None:
    strategy = WatermarkStrategy.no_watermarks()
    if at_ms is not None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: at_ms)
    keyed = env.from_source(script, strategy, "numbers").uid("numbers").key_by(lambda value: value, Types.LONG())
    keyed.process(Last()).uid("last").sink_to(Collect()).uid("out")


def run_script(script: Script, **options: Any) -> Result:
    return run(lambda env: build(script, env), **options)


def test_a_job_without_state_has_none() -> None:
    result = run(lambda env: env.from_collection([1, 2]).sink_to(Collect()))
    assert state_size(result.manifests[-1]) == StateSize(rows=0, bytes=0)


def test_rows_and_bytes_are_those_of_the_segments_of_all_subtasks() -> None:
    result = run_script(Script(list(range(100))), parallelism=3)
    size = state_size(result.manifests[-1])
    assert size.rows == 100 and size.bytes > 100 * 8


def test_a_segment_that_two_subtasks_share_after_a_rescale_is_counted_once() -> None:
    script, store = Script([*range(100), EPOCH, *range(3)]), f"progress-report-{next(_STORES)}"
    before = run_script(script, parallelism=1, store=store, epochs=1).manifests[-1]
    after = run_script(script, parallelism=2, store=store).manifests
    shared = next(manifest for manifest in after if manifest.epoch > before.epoch)
    assert state_size(before).rows == 100
    # The three keys that were overwritten are stored twice until compaction drops their first values.
    assert 100 <= state_size(shared).rows <= 103


def progress(at_ms: int | None, epochs: int | None) -> dict[str, Any]:
    """The board's fields after some epochs, or all."""

    def program(env: StreamExecutionEnvironment) -> None:
        build(Script([1, EPOCH, 2, EPOCH, 3]), env, at_ms)

    manifest = run(program, epochs=epochs).manifests[-1]
    env = StreamExecutionEnvironment()
    env.set_parallelism(1)
    program(env)
    return total_progress(manifest, compile_graph(env._graph("job")), ["numbers"], ["out"])


def test_the_watermark_is_shown_while_there_is_one_and_when_the_input_has_ended() -> None:
    assert progress(at_ms=5_000, epochs=2)["watermark_ms"] == 4_999
    assert progress(at_ms=None, epochs=2)["watermark_ms"] is None
    assert progress(at_ms=5_000, epochs=None)["watermark_ms"] == 2**63 - 1


def test_the_board_has_the_size_of_the_state() -> None:
    fields = progress(at_ms=None, epochs=None)
    assert fields["state_rows"] == 3 and fields["state_bytes"] > 0
