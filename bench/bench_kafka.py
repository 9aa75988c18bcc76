"""`make bench-kafka`: reading from and writing to Kafka, in one run on one machine, with the broker on it too.

    decode    JSON of 120 bytes with 5 fields into columns, in one thread
    bad       the same, as CSV, and in Debezium's envelopes, with 1 % of messages that are no UTF-8: the rate against
              that of valid messages alone, by the least processor time, measured in turns
    count     JSON in, a count per key and window, JSON out, against a plain confluent-kafka loop with json and a dict.
              Ours runs in two tasks, the loop in one process: the ratio is per task, by wall-clock time, so waiting
              counts.
              Also reported: the ratio by processor time, of all our processes (driver, JVM, workers) and of the loop's,
              without the broker. It is the relevant figure on a shared machine
    pyflink   the same counts by PyFlink's Table API, with its connector, in as many tasks as ours; reported, not
    judged.
              Installs PyFlink into build/pyflink
    once      every record decoded and written again: the exactly-once sink against our at-least-once one
    latency   10,000 records a second: from the time in a record to its arrival at a read-committed consumer

Choose parts with --only; --quick for a smoke test.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# Workers import modules of this folder, too; they inherit this when the JVM starts.
os.environ["PYTHONPATH"] = os.pathsep.join([str(FOLDER), str(FOLDER.parent / "src"), os.environ.get("PYTHONPATH", "")])
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src"), str(FOLDER.parent / "tests")]

import confluent_kafka  # noqa: E402
import kafka_programs as programs  # noqa: E402
import pyarrow as pa  # noqa: E402
from kafka_pyflink import installed_pyflink, run_pyflink  # noqa: E402
from measure import Report, at_least, median_ratio, take_turns, timed_s  # noqa: E402
from parts import run_parts  # noqa: E402
from processor_time import processor_s  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from running_job import RunningJob  # noqa: E402
from servers.kafka import KafkaBroker  # noqa: E402

from millstream.common.serialization import DeserializationSchema  # noqa: E402
from millstream.connectors.messages.codecs import Messages, decoder_of  # noqa: E402
from millstream.datastream import StreamExecutionEnvironment  # noqa: E402
from millstream.datastream.connectors import DeliveryGuarantee  # noqa: E402
from millstream.datastream.formats.csv import CsvRowDeserializationSchema  # noqa: E402
from millstream.datastream.formats.debezium import DebeziumJsonDeserializationSchema  # noqa: E402
from millstream.datastream.formats.json import JsonRowDeserializationSchema  # noqa: E402

TASKS = 2
PARTITIONS = 4
RATE = 10_000

Program = Callable[[StreamExecutionEnvironment, str, str, str, DeliveryGuarantee], None]


@dataclass(frozen=True)
class Sizes:
    """The size of the measurement."""

    decode_records: int = 1_000_000
    decode_rounds: int = 5
    count_records: int = 4_000_000
    once_records: int = 2_000_000
    rounds: int = 3
    latency_s: int = 30


QUICK = Sizes(
    decode_records=200_000, decode_rounds=3, count_records=300_000, once_records=200_000, rounds=1, latency_s=8
)  # fmt: skip


@contextmanager
def _broker() -> Iterator[KafkaBroker]:
    # As ephemeral as the benchmark: old timestamps must not make it remove segments.
    broker = KafkaBroker({"log.retention.hours": "100000", "log.retention.check.interval.ms": "600000"})
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def _topic(broker: KafkaBroker, name: str) -> str:
    return broker.create_topic(f"{name}-{uuid.uuid4().hex[:8]}", PARTITIONS)


def measure_decode(report: Report, sizes: Sizes) -> None:
    """In columns, in batches as a source reads them."""
    total, size = sizes.decode_records, 10_000
    values = [programs.record(number, programs.FIRST_MS + number) for number in range(total)]
    pieces = [pa.array(values[start : start + size], pa.binary()) for start in range(0, total, size)]
    decoder = decoder_of(JsonRowDeserializationSchema.builder().type_info(programs.RECORD_TYPE).build())

    def decode() -> None:
        for piece in pieces:
            decoded = decoder.decode(Messages(piece, lambda i: f"message {i}"))
            if decoded.bad or len(decoded.batch) != len(piece):
                raise RuntimeError(f"not every record could be read: {decoded.bad[:3]}")

    times_s = [timed_s(decode) for _ in range(sizes.decode_rounds + 1)][1:]
    rate = total / statistics.median(times_s) / 1e3
    note = f"{sum(map(len, values)) / total:.0f} bytes a record"
    report.add(at_least("JSON into columns, a thread", rate, 500, "k/s", note))


def measure_bad(report: Report, sizes: Sizes) -> None:
    """Valid messages stay in columns next to malformed ones."""
    total, size = sizes.decode_records // 5, 10_000
    documents = [programs.record(number, programs.FIRST_MS + number) for number in range(total)]
    row = programs.RECORD_TYPE
    schemas: dict[str, tuple[DeserializationSchema, list[bytes]]] = {
        "JSON": (JsonRowDeserializationSchema.builder().type_info(row).build(), documents),
        "CSV": (
            CsvRowDeserializationSchema.Builder(row).build(),
            [",".join(map(str, json.loads(document).values())).encode() for document in documents],
        ),
        "Debezium": (
            DebeziumJsonDeserializationSchema(row),
            [b'{"before":null,"after":' + document + b',"op":"c"}' for document in documents],
        ),
    }
    for name, (schema, good) in schemas.items():
        decoder = decoder_of(schema)
        bad = [b"\xff" + message if number % 100 == 0 else message for number, message in enumerate(good)]
        inputs = [
            [pa.array(values[start : start + size], pa.binary()) for start in range(0, total, size)]
            for values in (good, bad)
        ]
        costs_s: list[list[float]] = [[], []]
        for _ in range(sizes.decode_rounds + 1):
            for spent_s, pieces in zip(costs_s, inputs, strict=True):
                started_s = time.process_time()
                for piece in pieces:
                    decoder.decode(Messages(piece, lambda i: f"message {i}"))
                spent_s.append(time.process_time() - started_s)
        ratio = min(costs_s[0]) / min(costs_s[1])  # the minimum: cache effects of other processes only add
        report.add(at_least(f"{name}, 1 % of messages no UTF-8", ratio, 0.7, "×", "by processor time"))


def _run(
    session: SparkSession, program: Program, broker: KafkaBroker, source: str, guarantee: DeliveryGuarantee
) -> tuple[float, str]:
    """Run a program over the topic to its end; returns the duration and the output topic."""
    target = _topic(broker, "out")

    def add(env: StreamExecutionEnvironment) -> None:
        program(env, broker.bootstrap, source, target, guarantee)

    def act() -> None:
        with RunningJob(session, add, TASKS) as job:
            job.client.get_job_execution_result().result()

    return timed_s(act), target


def measure_count(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Both must count the same."""
    with _broker() as broker:
        source = _topic(broker, "in")
        programs.fill(broker.bootstrap, source, sizes.count_records)
        targets: dict[str, str] = {}
        worked_s: dict[str, list[float]] = {"ours": [], "loop": []}

        def count(name: str, act: Callable[[], tuple[float, str]]) -> float:
            outcome: list[tuple[float, str]] = []
            worked_s[name].append(processor_s(lambda: outcome.append(act()), [broker.pid]))
            took_s, targets[name] = outcome[0]
            return took_s

        def ours() -> tuple[float, str]:
            return _run(session, programs.count_in_windows, broker, source, DeliveryGuarantee.AT_LEAST_ONCE)

        def loop() -> tuple[float, str]:
            target = _topic(broker, "loop")
            return timed_s(partial(programs.plain_loop, broker.bootstrap, source, target)), target

        took = take_turns({"ours": partial(count, "ours", ours), "loop": partial(count, "loop", loop)}, sizes.rounds)
        counted = {name: _counts(broker, target) for name, target in targets.items()}
        if counted["ours"] != counted["loop"]:
            raise RuntimeError(f"the counts differ: {counted['ours'][:3]}… and {counted['loop'][:3]}…")
    ratio = median_ratio(took["loop"], took["ours"]) / TASKS
    report.add(at_least("JSON, windows, JSON, to a confluent-kafka loop, per core", ratio, 3))
    rates = {name: f"{sizes.count_records / statistics.median(times) / 1e3:,.0f} k/s" for name, times in took.items()}
    report.note(f"{rates['ours']} in {TASKS} tasks, start and end of the job included; the loop {rates['loop']}")
    worked = {name: seconds[1:] for name, seconds in worked_s.items()}  # the first warms up
    by_processor = median_ratio(worked["loop"], worked["ours"])
    seconds = {name: f"{statistics.median(times):.1f} s" for name, times in worked.items()}
    report.note(
        f"by processor time {by_processor:.1f} ×: ours {seconds['ours']} in driver, JVM and workers, the loop "
        f"{seconds['loop']}; broker aside"
    )


def measure_pyflink(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Both must count the same. PyFlink runs its rounds in one process, so that its JVM is warm, too."""
    python = installed_pyflink()
    with _broker() as broker:
        source = _topic(broker, "in")
        programs.fill(broker.bootstrap, source, sizes.count_records)
        took_s, worked_s, target = [], [], ""
        for _ in range(sizes.rounds + 1):
            outcome: list[tuple[float, str]] = []
            act = partial(_run, session, programs.count_in_windows, broker, source, DeliveryGuarantee.AT_LEAST_ONCE)
            worked_s.append(processor_s(lambda: outcome.append(act()), [broker.pid]))  # noqa: B023
            took_s.append(outcome[0][0])
            target = outcome[0][1]
        targets = [_topic(broker, "flink") for _ in range(sizes.rounds + 1)]
        runs = run_pyflink(python, TASKS, broker.bootstrap, source, targets)
        ours, theirs = _counts(broker, target), _counts(broker, targets[-1])
        if ours != theirs:
            raise RuntimeError(f"the counts differ: {ours[:3]}… and {theirs[:3]}…")
    by_clock = statistics.median(run.wall_s for run in runs[1:]) / statistics.median(took_s[1:])
    by_processor = statistics.median(run.processor_s for run in runs[1:]) / statistics.median(worked_s[1:])
    report.note(
        f"to PyFlink's Table API, {TASKS} tasks each: {by_clock:.1f} × by the clock, {by_processor:.1f} × by processor "
        f"time; PyFlink {sizes.count_records / statistics.median(run.wall_s for run in runs[1:]) / 1e3:,.0f} k/s, "
        f"{statistics.median(run.processor_s for run in runs[1:]):.1f} s of processor time, ours "
        f"{statistics.median(worked_s[1:]):.1f} s"
    )


def _counts(broker: KafkaBroker, topic: str) -> list[tuple[str, int, int]]:
    rows = (json.loads(value) for value in programs.messages_in(broker.bootstrap, topic))
    return sorted((row["user"], row["window_start"], row["records"]) for row in rows)


def measure_once(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """The same program and input; only the delivery guarantee differs."""
    with _broker() as broker:
        source = _topic(broker, "in")
        programs.fill(broker.bootstrap, source, sizes.once_records)

        def contestant(guarantee: DeliveryGuarantee) -> float:
            took_s, target = _run(session, programs.pass_on, broker, source, guarantee)
            written = sum(1 for _ in programs.messages_in(broker.bootstrap, target))
            if written != sizes.once_records:
                raise RuntimeError(f"{guarantee.name}: {written} messages of {sizes.once_records}")
            return float(took_s)

        chosen = (DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE)
        took = take_turns({guarantee.name: partial(contestant, guarantee) for guarantee in chosen}, sizes.rounds)
    report.add(
        at_least("exactly once, to at least once", median_ratio(took["AT_LEAST_ONCE"], took["EXACTLY_ONCE"]), 0.7)
    )
    rates = {name: f"{sizes.once_records / statistics.median(times) / 1e3:,.0f} k/s" for name, times in took.items()}
    report.note(f"exactly once {rates['EXACTLY_ONCE']}, at least once {rates['AT_LEAST_ONCE']}, in {TASKS} tasks")


def measure_latency(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Reported, not judged: it is mostly the duration of an epoch."""
    for guarantee in (DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE):
        with _broker() as broker:
            source, target = _topic(broker, "in"), _topic(broker, "out")
            stop = threading.Event()
            feeder = threading.Thread(target=_feed, args=(broker.bootstrap, source, stop))

            def add(env: StreamExecutionEnvironment, guarantee: DeliveryGuarantee = guarantee) -> None:
                programs.pass_on_unbounded(env, broker.bootstrap, source, target, guarantee)  # noqa: B023

            with RunningJob(session, add, TASKS, {"millstream.epoch.poll-interval": "10 ms"}):
                feeder.start()
                try:
                    delays_ms = _delays_ms(broker.bootstrap, target, sizes.latency_s)
                finally:
                    stop.set()
                    feeder.join()
        if not delays_ms:
            raise RuntimeError(f"{guarantee.name}: nothing was read within two minutes")
        p50, p99 = statistics.median(delays_ms), statistics.quantiles(delays_ms, n=100)[98]
        report.note(
            f"{guarantee.name}: {RATE:,} records/s, p50 {p50:,.0f} ms, p99 {p99:,.0f} ms, {len(delays_ms):,} seen"
        )


def _feed(bootstrap: str, topic: str, stop: threading.Event) -> None:
    """Write records at the rate, each with its time, until stopped."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 2})
    started, number = time.monotonic(), 0
    while not stop.is_set():
        due = int((time.monotonic() - started) * RATE)
        for each in range(number, due):
            producer.produce(topic, programs.record(each, _now_ms()))
        number = max(number, due)
        producer.poll(0)
        time.sleep(0.005)
    producer.flush()


def _delays_ms(bootstrap: str, topic: str, seconds: int) -> list[int]:
    """The ages of records read in the second half of some seconds after the first record."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "latency", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "fetch.wait.max.ms": 5})
    consumer.subscribe([topic])
    delays: list[int] = []
    first_s: float | None = None
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and (first_s is None or time.monotonic() < first_s + seconds):
        for message in consumer.consume(1_000, timeout=0.05):
            if message.error():
                continue
            first_s = first_s or time.monotonic()
            if time.monotonic() > first_s + seconds / 2:
                delays.append(_now_ms() - int(json.loads(message.value())["at"]))
    consumer.close()
    return delays


def _now_ms() -> int:
    return int(time.time() * 1000)


if __name__ == "__main__":
    raise SystemExit(
        run_parts(
            "bench-kafka",
            (__doc__ or "").splitlines()[0],
            {
                "count": measure_count,
                "pyflink": measure_pyflink,
                "once": measure_once,
                "latency": measure_latency,
            },
            Sizes(),
            QUICK,
            tasks=TASKS,
            without_spark={"decode": measure_decode, "bad": measure_bad},
        )
    )
