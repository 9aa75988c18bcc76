"""The job that the Kafka kill tests disturb: Kafka → count per user in keyed state → Kafka, exactly once.

    python kafka_program.py SPARK_FOLDER

A session of Spark costs seconds, so the process outlives a job: it reads one JSON line per job from its input, runs the
job to its end (or until it reads "stop"), and prints one line as each phase is reached:

    PHASE session | epoch N
    ENDED finished | ENDED KindOfError what it says

Every result is "user,count,number": the how-manyth record of the user it was, and which. Of one user they must come in
order, each once.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from phases import phase, tell_epochs

from millstream.common import Configuration, SimpleStringSchema, Types, WatermarkStrategy
from millstream.common.restart_strategy import RestartStrategies
from millstream.common.serialization import SerializationSchema
from millstream.connectors.kafka import lanes
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors import DeliveryGuarantee
from millstream.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.jobs.launch.job import Job
from millstream.spark.session import make_session

RECORDS = 2_400
USERS = 23
EPOCH_RECORDS = 200
ANSWER_MS = 4_000
"""How long the broker may keep silent before an attempt is given up."""


def record(number: int) -> str:
    return f"user-{number * 7919 % USERS},{number}"


def user_of(text: str) -> str:
    return text.split(",")[0]


def expected() -> dict[str, list[str]]:
    """The results of each user, in order, computed apart."""
    results: dict[str, list[str]] = {}
    for number in range(RECORDS):
        mine = results.setdefault(user_of(record(number)), [])
        mine.append(f"{user_of(record(number))},{len(mine) + 1},{number}")
    return results


class UserKey(SerializationSchema):
    """A message's key is its user, so that a user's results are in one partition."""

    def serialize(self, value: str) -> bytes:
        return user_of(value).encode()


class Count(KeyedProcessFunction):
    """Numbers the records of a user."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        user, number = value.split(",")
        yield f"{user},{count},{number}"


def build(env: StreamExecutionEnvironment, order: dict[str, Any]) -> None:
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(order["bootstrap"])
        .set_topics(order["input"])
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(order["output"])
        .set_key_serialization_schema(UserKey())
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(order["bootstrap"])
        .set_record_serializer(serializer)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix("killed")
        .set_property("delivery.timeout.ms", str(ANSWER_MS))
        .build()
    )
    records = env.from_source(source, WatermarkStrategy.no_watermarks(), "records").uid("records")
    counted = records.key_by(user_of, Types.STRING()).process(Count(), Types.STRING()).uid("counted")
    counted.sink_to(sink).uid("results")


def started(session: Any, order: dict[str, Any]) -> Job:
    # Small epochs are published by the driver, larger ones by tasks: both ways are to be killed.
    lanes.DRIVER_BYTES_MAX, lanes.LANE_BYTES = (0, 1) if order["in_tasks"] else (1 << 20, 1 << 22)
    env = StreamExecutionEnvironment.get_execution_environment().use_spark_session(session)
    env.set_parallelism(order["parallelism"]).set_store(order["store"]).set_max_parallelism(8)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1_000, 200))
    env.configure(Configuration().set_integer("millstream.epoch.max-records", EPOCH_RECORDS))
    build(env, order)
    return env._launch("counted")


def main(spark_folder: str) -> None:
    session = make_session("local[2]", {"spark.local.dir": spark_folder})
    phase("session")
    job: Job | None = None
    for line in sys.stdin:
        if line.strip() == "stop":
            if job is not None:
                job.stop()
            continue
        try:
            job = started(session, json.loads(line))
        except Exception as error:
            tell_end(error)
            continue
        tell_epochs(job.board)
        threading.Thread(target=wait_for, args=(job,), daemon=True).start()


def wait_for(job: Job) -> None:
    """Say how a job ended."""
    try:
        job.result()
        tell_end(None)
    except Exception as error:
        tell_end(error)


def tell_end(error: Exception | None) -> None:
    text = "finished" if error is None else f"{type(error).__name__} {str(error).splitlines()[0]}"
    print(f"ENDED {text}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
