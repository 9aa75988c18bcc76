"""`make bench-queries`: a job that is queried while it runs, in one run on one machine.

    job          impressions counted per ad for very many ads: while four clients query random ads, against no queries,
                 and against few ads; by a function per record, and in hourly windows in columns
    http         the latency of one answer while the job runs, and its age
    reads        many keys at once over Arrow Flight, and single keys in process
    replicas     two servers, each with half of the key groups, against one, by processor time
    redis        the same job that writes changes to a Redis every second, against the queried job

Ours is always a whole epoch of a real job, to its manifest, as it runs on Spark. It is queried through `millstream
query-server` in a process of its own, by clients that are processes too: with the job's two tasks that is more than two
cores have room for, so clients are paced, which is reported, and their and the server's processor time is taken from
the job. Choose parts with --only; --quick for a smoke test.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PEERS = FOLDER.parent / "build" / "peers"
# Workers import modules of this folder, too; they inherit this when the JVM starts.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(FOLDER), str(FOLDER.parent / "src"), os.environ.get("PYTHONPATH", ""), str(PEERS)]
)
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src")]
# Python caches the absence of a folder that did not exist when it started.
PEERS.mkdir(parents=True, exist_ok=True)

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
from gated import GatedJob  # noqa: E402
from measure import Report, at_least, at_most, median_ratio, take_turns  # noqa: E402
from parts import run_parts  # noqa: E402
from programs.queryable import COUNTS, HOURS, counted, flushed, hourly  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from query_bare import bare_server  # noqa: E402
from query_load import GROUPS, Asked, Clients, Seen, clients  # noqa: E402
from query_redis import fetch_redis, keys_held, redis_server  # noqa: E402
from query_serving import Served, query_server  # noqa: E402
from window_records import TIMED_TYPE, TimedRecords  # noqa: E402

from millstream import query  # noqa: E402
from millstream.datastream import DataStream  # noqa: E402
from millstream.query.client import QueryClient  # noqa: E402

TASKS = 2
CLIENTS = 4
WARM_UP_ROUNDS = 1
EPOCH_SPAN_MS = 10_000
_PATHS = {COUNTS: f"/v1/jobs/bench/states/{COUNTS}/keys", HOURS: f"/v1/jobs/bench/states/{HOURS}/windows"}

Program = Callable[[DataStream], DataStream]


@dataclass(frozen=True)
class Sizes:
    """The size of the measurement. `records` are those of one epoch."""

    keys: int = 1_000_000
    few_keys: int = 100
    counted_records: int = 5_000_000
    hourly_records: int = 10_000_000
    rounds: int = 9
    questions_per_s: float = 10.0
    http_records: int = 1_000_000
    http_epochs: int = 20
    http_questions_per_s: float = 100.0
    gets: int = 200_000
    flight_calls: int = 300
    replica_epochs: int = 5
    replica_rounds: int = 5
    redis_rounds: int = 3


QUICK = Sizes(
    keys=100_000, counted_records=300_000, hourly_records=1_000_000, rounds=3, http_records=100_000, http_epochs=8,
    gets=20_000, flight_calls=50, replica_epochs=6, replica_rounds=2, redis_rounds=2,
)  # fmt: skip


def _job(session: SparkSession, program: Program, records: int, keys: int) -> GatedJob:
    # Every epoch has other records, and no hour ends during the measurement.
    epochs = [TimedRecords(epoch, records, keys, EPOCH_SPAN_MS) for epoch in range(60)]
    return GatedJob(session, TASKS, epochs[-1], TIMED_TYPE, program, TASKS, epochs)


def _rate(records: int, took_s: Sequence[float]) -> str:
    return f"{records / statistics.median(took_s) / 1e6:.2f} M/s"


def _percentile(values: Sequence[float], percent: int) -> float:
    return float(np.percentile(values, percent))


# --- the job, asked and not ----------------------------------------------------------------------------------------


def measure_job(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """By a function per record, and in columns."""
    took = _asked_or_not(report, session, sizes, counted, COUNTS, sizes.counted_records)
    ratio = median_ratio(took["few"], took["asked"])
    report.add(at_least(f"{sizes.keys:,} keys and asked, to {sizes.few_keys} keys and not", ratio, 0.85))
    took = _asked_or_not(report, session, sizes, hourly, HOURS, sizes.hourly_records)
    ratio = median_ratio(took["few"], took["asked"])
    report.note(
        f"in columns {sizes.keys:,} keys and asked are {ratio:.2f} × {sizes.few_keys} keys and not: few keys are "
        "added up before the exchange (docs/understand/benchmarks.md, Windows), whoever asks"
    )


def _asked_or_not(
    report: Report, session: SparkSession, sizes: Sizes, program: Program, state: str, records: int
) -> dict[str, list[float]]:
    with ExitStack() as stack:
        # Two jobs, so that each round compares the same epoch of the same history, with the same compaction.
        many, alone = (stack.enter_context(_job(session, program, records, sizes.keys)) for _ in range(2))
        few = stack.enter_context(_job(session, program, records, sizes.few_keys))
        many.epoch_s()
        alone.epochs_s(2)
        served = stack.enter_context(query_server(many.store))
        asked = Asked(served.port, _PATHS[state], sizes.keys, sizes.questions_per_s)
        asking = stack.enter_context(clients([asked] * CLIENTS))
        _warm_up(many, asking, [served])
        contestants = {
            "few": few.epoch_s,
            "alone": alone.epoch_s,
            "asked": partial(asking.during, many.epoch_s),
        }
        took = take_turns(contestants, sizes.rounds, WARM_UP_ROUNDS)
        seen, cpu_ms = asking.all(), served.cost_ms(len(asking.all().took_ms))
    name = f"{sizes.keys:,} keys, asked by {CLIENTS} clients, to not asked ({state})"
    report.add(at_least(name, median_ratio(took["alone"], took["asked"]), 0.95))
    report.note(
        f"{_rate(records, took['asked'])}, not asked {_rate(records, took['alone'])}, with {sizes.few_keys} keys "
        f"{_rate(records, took['few'])}; each client asks {sizes.questions_per_s:g} times a second at most, "
        f"{len(seen.took_ms):,} answers, {_times(seen)}; each took {cpu_ms:.2f} ms of the server's processor time, "
        f"opening epochs included, and {1000 * seen.cpu_s / len(seen.took_ms):.2f} ms of its client's"
    )
    return took


def _warm_up(job: GatedJob, asking: Clients, servers: Sequence[Served]) -> None:
    """The first queries initialise the server's caches."""
    asking.during(partial(job.epochs_s, 1))
    asking.reset()
    for served in servers:
        served.reset()


def _times(seen: Seen) -> str:
    p50, p99 = (_percentile(seen.took_ms, percent) for percent in (50, 99))
    return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms"


# --- one answer ----------------------------------------------------------------------------------------------------


def measure_http(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """One client, one persistent connection, while epochs run without pauses. The server is scheduled like the job's
    tasks; only the measuring client has a higher priority, if permitted.
    """
    for state, program in ((COUNTS, counted), (HOURS, hourly)):
        with ExitStack() as stack:
            job = stack.enter_context(_job(session, program, sizes.http_records, sizes.keys))
            job.epochs_s(2)
            seen, epochs_s, cpu_ms = _asked_beside(job, state, sizes)
            bare = _asked_of_nothing(job, sizes)
        report.add(at_most(f"one answer over HTTP, p50 ({state})", _percentile(seen.took_ms, 50), 2, "ms"))
        report.add(at_most(f"one answer over HTTP, p99 ({state})", _percentile(seen.took_ms, 99), 5, "ms"))
        epoch_ms, age_ms = 1000 * statistics.median(epochs_s), _percentile(seen.ages_ms, 50)
        report.add(at_most(f"age of answers, p50, beyond one epoch ({state})", age_ms - epoch_ms, 100, "ms"))
        report.note(
            f"{len(seen.took_ms):,} answers, {sizes.http_questions_per_s:g} a second at most, {cpu_ms:.2f} ms of the "
            f"server's processor time for each, opening epochs included; {_times(seen)}; age {age_ms:.0f} ms with "
            f"epochs of {epoch_ms:.0f} ms; the server has the priority of the job's tasks. A server that does nothing, "
            f"asked in the same way beside the same job: {_times(bare)}"
        )


def _asked_beside(job: GatedJob, state: str, sizes: Sizes) -> tuple[Seen, list[float], float]:
    """A client's measurements while epochs ran, their durations, and the server's processor time per answer in ms."""
    with ExitStack() as stack:
        served = stack.enter_context(query_server(job.store))
        asked = Asked(served.port, _PATHS[state], sizes.keys, sizes.http_questions_per_s)
        asking = stack.enter_context(clients([asked]))
        _warm_up(job, asking, [served])
        epochs_s = asking.during(partial(job.epochs_s, sizes.http_epochs))
        return asking.all(), epochs_s, served.cost_ms(len(asking.all().took_ms))


def _asked_of_nothing(job: GatedJob, sizes: Sizes) -> Seen:
    """The same client's latency with an idle server: the minimum of this machine."""
    with ExitStack() as stack:
        port = stack.enter_context(bare_server())
        asking = stack.enter_context(clients([Asked(port, "/", sizes.keys, sizes.http_questions_per_s)]))
        asking.during(partial(job.epochs_s, sizes.http_epochs))
        return asking.all()


# --- many answers ------------------------------------------------------------------------------------------------


def measure_reads(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """The job is idle: only reads are measured."""
    with ExitStack() as stack:
        job = stack.enter_context(_job(session, counted, sizes.counted_records, sizes.keys))
        for _ in range(3):
            job.epoch_s()
        stack.enter_context(query_server(job.store))
        client = stack.enter_context(QueryClient(job.store))
        by_flight = [_flight_keys_per_s(client, sizes) for _ in range(5)]
        in_process = [_gets_per_s(job.store, sizes) for _ in range(5)]
    report.add(at_least("get_many of 1,000 keys, Flight", statistics.median(by_flight) / 1e3, 300, "k/s"))
    report.note("QueryClient.get_columns, one call after the other, on one connection")
    report.add(at_least("get in process, one thread", statistics.median(in_process) / 1e3, 50, "k/s"))


def _flight_keys_per_s(client: QueryClient, sizes: Sizes) -> float:
    random = np.random.default_rng(1)
    questions = [pa.array(random.integers(0, sizes.keys, 1_000)) for _ in range(sizes.flight_calls)]
    client.get_columns(COUNTS, questions[0])
    started_s = time.perf_counter()
    for keys in questions:
        answer = client.get_columns(COUNTS, keys)
        if answer.num_rows != 1_000:
            raise RuntimeError(f"{answer.num_rows} answers for 1,000 keys")
    return sizes.flight_calls * 1_000 / (time.perf_counter() - started_s)


def _gets_per_s(store: str, sizes: Sizes) -> float:
    view = query.open(store)
    keys = np.random.default_rng(1).integers(0, sizes.keys, sizes.gets).tolist()
    view.newest().get(COUNTS, keys[0])
    started_s = time.perf_counter()
    for key in keys:
        view.newest().get(COUNTS, key)
    return sizes.gets / (time.perf_counter() - started_s)


# --- replicas ----------------------------------------------------------------------------------------------------


def measure_replicas(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Answers per second of processor time, while the job commits epochs that every server has to open: two replicas
    on their own cores have the sum of their rates.
    """
    halves = [range(GROUPS // 2), range(GROUPS // 2, GROUPS)]
    with _job(session, counted, sizes.http_records, sizes.keys) as job:
        job.epochs_s(2)
        contestants = {
            "one": partial(_answers_per_cpu_s, job, [None], sizes),
            "two": partial(_answers_per_cpu_s, job, halves, sizes),
        }
        answers = take_turns(contestants, sizes.replica_rounds, 0)
    ratio = median_ratio(answers["two"], answers["one"])
    report.add(at_least("two replicas with half of the key groups each, to one", ratio, 1.7))
    two, one = (statistics.median(answers[which]) for which in ("two", "one"))
    report.note(f"by processor time: {two:,.0f} answers by both in a second of a core each, {one:,.0f} by one server")


def _answers_per_cpu_s(job: GatedJob, held: Sequence[range | None], sizes: Sizes) -> float:
    """Summed over the servers; each has a client of its own, which queries without pauses."""
    with ExitStack() as stack:
        servers = [stack.enter_context(query_server(job.store, groups)) for groups in held]
        spans = [groups or range(GROUPS) for groups in held]
        asked = [
            Asked(served.port, _PATHS[COUNTS], sizes.keys, 0, span[0], span[-1])
            for served, span in zip(servers, spans, strict=True)
        ]
        asking = stack.enter_context(clients(asked))
        _warm_up(job, asking, servers)
        asking.during(partial(job.epochs_s, sizes.replica_epochs))
        return sum(len(seen.took_ms) / served.used_s() for seen, served in zip(asking.seen, servers, strict=True))


# --- with a Redis instead of queries -----------------------------------------------------------------------------


def measure_redis(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """The cost of having the same values readable in a Redis, at most a second old."""
    fetch_redis()
    with ExitStack() as stack:
        port = stack.enter_context(redis_server())
        ours = stack.enter_context(_job(session, counted, sizes.counted_records, sizes.keys))
        theirs = stack.enter_context(_job(session, partial(flushed, port=port), sizes.counted_records, sizes.keys))
        ours.epoch_s()
        served = stack.enter_context(query_server(ours.store))
        asked = Asked(served.port, _PATHS[COUNTS], sizes.keys, sizes.questions_per_s)
        asking = stack.enter_context(clients([asked] * CLIENTS))
        contestants = {"ours": partial(asking.during, ours.epoch_s), "theirs": theirs.epoch_s}
        took = take_turns(contestants, sizes.redis_rounds, WARM_UP_ROUNDS)
        held = keys_held(port)
    ratio = median_ratio(took["theirs"], took["ours"])
    report.note(
        f"asked by {CLIENTS} clients, the job is {ratio:.1f} × as fast as when it writes what has changed to Redis "
        f"every second: {_rate(sizes.counted_records, took['ours'])}, with Redis "
        f"{_rate(sizes.counted_records, took['theirs'])}; {held:,} keys in Redis, 1,000 in a command"
    )


PARTS: dict[str, Callable[[Report, SparkSession, Sizes], None]] = {
    "job": measure_job,
    "http": measure_http,
    "reads": measure_reads,
    "replicas": measure_replicas,
    "redis": measure_redis,
}


if __name__ == "__main__":
    sys.exit(run_parts("queries", "a job that is asked while it runs", PARTS, Sizes(), QUICK, tasks=TASKS))
