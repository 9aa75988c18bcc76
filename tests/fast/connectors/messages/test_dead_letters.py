"""An undecodable message stops the job with its position and bytes, or is emitted to the configured side output. It
never becomes a null.
"""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from inputs.fresh_names import fresh_name
from servers.message_log import MessageLog

from millstream.common import Configuration, Row, Types
from millstream.common.restart_strategy import RestartStrategies
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.messages.dead_letters import DEAD_LETTER_TYPE
from millstream.datastream import OutputTag, StreamExecutionEnvironment
from millstream.datastream.formats.canal import CanalJsonDeserializationSchema
from millstream.datastream.formats.csv import CsvRowDeserializationSchema
from millstream.datastream.formats.debezium import DebeziumJsonDeserializationSchema
from millstream.datastream.formats.json import JsonRowDeserializationSchema
from millstream.datastream.formats.protobuf import ProtobufRowDeserializationSchema
from millstream.datastream.functions import MapFunction
from millstream.errors import JobFailedError, NotAvailableError, ProgramError
from millstream.jobs.replay.replay import replay
from millstream.testing import Collect, run

NUMBER = Types.ROW_NAMED(["n"], [Types.INT()])
BAD = OutputTag("bad")
LOG = [b'{"n": 1}', b'{"n": "x"}', None, b"{", b'{"n": 2}', b'{"n": 3}', b"\xff"]
PLACES = ["topic t, partition 0, offset 1", "topic t, partition 0, offset 3", "topic t, partition 0, offset 6"]


def schema() -> JsonRowDeserializationSchema:
    return JsonRowDeserializationSchema.builder().type_info(NUMBER).build()


def read(env: StreamExecutionEnvironment, source: MessageLog) -> Any:
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "log").uid("log")


def test_without_a_tag_the_job_stops_at_the_first_bad_message_with_its_position_and_bytes() -> None:
    with pytest.raises(JobFailedError) as failure:
        run(lambda env: read(env, MessageLog(schema(), LOG)).sink_to(Collect()))
    text = str(failure.value)
    assert "topic t, partition 0, offset 1" in text and """b'{"n": "x"}'""" in text


@pytest.mark.parametrize("epoch_records", [1, 2, 100])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_bad_messages_go_to_a_side_output_and_are_counted(epoch_records: int, parallelism: int) -> None:
    good, bad = Collect("good"), Collect("bad")

    def build(env: StreamExecutionEnvironment) -> None:
        stream = read(env, MessageLog(schema().with_dead_letters(BAD), LOG, [b"["]))
        stream.map(lambda row: row.n).sink_to(good)
        stream.get_side_output(BAD).sink_to(bad)

    result = run(build, epoch_records=epoch_records, parallelism=parallelism)
    assert sorted(result[good]) == [1, 2, 3]
    letters = sorted(result[bad], key=lambda row: row.place)
    assert [letter.place for letter in letters] == [*PLACES, "topic t, partition 1, offset 0"]
    assert [letter.value for letter in letters] == [LOG[1], LOG[3], LOG[6], b"["]
    assert all(letter.reason for letter in letters)
    counted = [metric for name, metric in result.metrics.items() if name.endswith("numRecordsInErrors")]
    assert sum(metric["counter"] for metric in counted) == 4


class FailingOnce(MapFunction):
    """Fails at the first `3` it receives in this process."""

    has_failed = False

    def map(self, value: Any) -> Any:
        if value.n == 3 and not FailingOnce.has_failed:
            FailingOnce.has_failed = True
            raise RuntimeError("the first time")
        return value.n


def test_after_a_restart_every_bad_message_is_emitted_once() -> None:
    good, bad = Collect("good"), Collect("bad")
    FailingOnce.has_failed = False

    def build(env: StreamExecutionEnvironment) -> None:
        stream = read(env, MessageLog(schema().with_dead_letters(BAD), LOG))
        stream.map(FailingOnce()).sink_to(good)
        stream.get_side_output(BAD).map(lambda row: row.place, Types.STRING()).sink_to(bad)

    result = run(build, epoch_records=4, restart=RestartStrategies.fixed_delay_restart(3, 0))
    assert (result.restarts, result[good], result[bad]) == (1, [1, 2, 3], PLACES)
    counted = [metric for name, metric in result.metrics.items() if name.endswith("numRecordsInErrors")]
    assert counted == [{"counter": 3}]


def test_unconsumed_bad_messages_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    out = Collect()
    result = run(lambda env: read(env, MessageLog(schema().with_dead_letters(BAD), LOG)).sink_to(out))
    assert [row.n for row in result[out]] == [1, 2, 3]
    assert "no operator reads their side output" in caplog.text and PLACES[0] in caplog.text
    assert [m for name, m in result.metrics.items() if name.endswith("numRecordsInErrors")] == [{"counter": 3}]


class OnceReadLog(MessageLog):
    """Readable by the job only: a replay depends on the recorded input."""

    replayable = False

    def reopened(self, store: Any, session: Any) -> Any:
        raise NotAvailableError("it is gone")


@pytest.mark.parametrize("record", [False, True])
def test_an_epoch_with_bad_messages_replays_identically(record: bool) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.configure(Configuration().set_boolean("millstream.record", record))
        log = OnceReadLog if record else MessageLog
        stream = read(env, log(schema().with_dead_letters(BAD), LOG))
        stream.key_by(lambda row: row.n).reduce(lambda a, b: b).uid("last").sink_to(Collect("good")).uid("good")
        letters = stream.get_side_output(BAD).key_by(lambda row: row.place).reduce(lambda a, b: b).uid("letters")
        letters.sink_to(Collect("bad")).uid("bad")

    store = fresh_name("dead-letters")
    result = run(build, store=store, epoch_records=3)
    for epoch in range(1, result.epochs + 1):
        env = StreamExecutionEnvironment()
        env.set_parallelism(1)
        build(env)
        comparison = replay(env._graph(None), env._job_settings(), f"memory://{store}@{epoch}", "letters")
        assert comparison.is_same, comparison.text()


def test_an_invalid_side_output_of_a_source_is_rejected_at_the_users_line() -> None:
    env = StreamExecutionEnvironment()
    plain = read(env, MessageLog(schema(), LOG))
    with pytest.raises(ProgramError, match=r"has no side output.*with_dead_letters\(tag\)"):
        plain.get_side_output(BAD)
    tagged = env.add_source(MessageLog(schema().with_dead_letters(BAD), LOG))
    with pytest.raises(ProgramError, match="has the side output 'bad' only"):
        tagged.get_side_output(OutputTag("other"))
    with pytest.raises(ProgramError, match="is read as STRING"):
        tagged.get_side_output(OutputTag("bad", Types.STRING()))
    assert tagged.get_side_output(OutputTag("bad", DEAD_LETTER_TYPE)).get_type() == DEAD_LETTER_TYPE
    with pytest.raises(ProgramError, match="expected an OutputTag"):
        schema().with_dead_letters("bad")


@pytest.mark.parametrize(
    "lenient",
    [
        JsonRowDeserializationSchema.builder().type_info(NUMBER).ignore_parse_errors().build(),
        CsvRowDeserializationSchema.Builder(NUMBER).set_ignore_parse_errors(True).build(),
        DebeziumJsonDeserializationSchema(NUMBER, ignore_parse_errors=True),
        CanalJsonDeserializationSchema(NUMBER, ignore_parse_errors=True),
        ProtobufRowDeserializationSchema(Duration, ignore_parse_errors=True),
    ],
)
def test_messages_are_ignored_or_sent_to_a_side_output_but_not_both(lenient: Any) -> None:
    with pytest.raises(ProgramError, match="Keep one"):
        lenient.with_dead_letters(BAD)


def test_many_bad_messages_are_sent_in_batches_of_bounded_size() -> None:
    good, bad = Collect("good"), Collect("bad")

    def build(env: StreamExecutionEnvironment) -> None:
        env.configure(Configuration().set_integer("millstream.batch.max-records", 7))
        stream = read(env, MessageLog(schema().with_dead_letters(BAD), [b"{"] * 50))
        stream.sink_to(good)
        stream.get_side_output(BAD).rebalance().sink_to(bad)

    result = run(build, parallelism=2)
    assert (len(result[good]), len(result[bad])) == (0, 50)


def test_a_schema_with_dead_letters_is_a_copy() -> None:
    first = schema()
    assert first.with_dead_letters(BAD).dead_letter_tag == BAD and first.dead_letter_tag is None
    assert first.with_dead_letters(BAD).deserialize(b'{"n": 1}') == Row(n=1)
