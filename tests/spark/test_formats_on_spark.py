"""Messages in formats where Spark runs the tasks: kinds of rows and unreadable messages cross its exchanges."""

from __future__ import annotations

from pathlib import Path

import cloudpickle
from servers import message_log
from servers.message_log import MessageLog

from millstream.checkpoint.manifest import ManifestLog
from millstream.common import Types, WatermarkStrategy
from millstream.datastream import OutputTag, StreamExecutionEnvironment
from millstream.datastream.formats.debezium import DebeziumJsonDeserializationSchema
from millstream.storage import open_store
from millstream.testing import Collect

AD = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
BAD = OutputTag("bad")
LOG = [
    b'{"after": {"id": 1, "name": "a"}, "op": "c"}',
    b'{"op": "t"}',
    b'{"before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"}, "op": "u"}',
    b"\xff",
    b'{"before": {"id": 1, "name": "b"}, "op": "d"}',
]
cloudpickle.register_pickle_by_value(message_log)  # workers do not know this folder


def test_kinds_and_dead_letters_cross_exchanges(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    good, bad, folder = Collect("good"), Collect("bad"), str(tmp_path / "store")
    env.set_store(folder).set_parallelism(2)
    source = MessageLog(DebeziumJsonDeserializationSchema(AD).with_dead_letters(BAD), LOG, LOG[3:4])
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "log")
    stream.key_by(lambda row: row.id, Types.LONG()).map(lambda row: row, AD).sink_to(good)
    stream.get_side_output(BAD).rebalance().sink_to(bad)
    env.execute()
    assert [f"{row.get_row_kind()} {row.name}" for row in good.values] == ["+I a", "-U a", "+U b", "-D b"]
    letters = sorted((row.place, row.value) for row in bad.values)
    assert letters == [
        ("topic t, partition 0, offset 1", LOG[1]),
        ("topic t, partition 0, offset 3", LOG[3]),
        ("topic t, partition 1, offset 0", LOG[3]),
    ]
    log = ManifestLog(open_store(folder))
    metrics = log.read(log.epochs()[-1]).counters["metrics"]
    assert isinstance(metrics, dict)
    assert [metric for name, metric in metrics.items() if name.endswith("numRecordsInErrors")] == [{"counter": 3}]
