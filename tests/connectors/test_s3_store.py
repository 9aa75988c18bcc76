"""A job's store on a real S3: races, rejections, cost, and a slow and failing service."""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from servers.http_proxy import Fate, HttpProxy, Request
from servers.minio import MinioServer
from servers.moto import MotoServer
from servers.tcp_proxy import TcpProxy
from waits.patience import PATIENCE_S

from millstream.checkpoint.manifest import ManifestLog
from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ConfigurationError, StoreAwayError, StoreError
from millstream.jobs.epochs.epoch_statistics import statistics_of
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.storage.objects import connect
from millstream.storage.patience import with_patience
from millstream.storage.request_counts import REQUESTS
from millstream.storage.store import Store, open_store
from millstream.testing import EPOCH, Collect, ManualClock, Script

SECRET = "millstream-secret-of-the-tests"


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Points stores of this process to a service: `endpoint(server, url)`."""

    def lead_to(server: MinioServer | MotoServer, url: str | None = None) -> None:
        for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ALLOW_HTTP", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
        monkeypatch.setenv("AWS_REGION", server.region)
        monkeypatch.setenv("AWS_ENDPOINT_URL", url or server.url)

    yield lead_to


@pytest.fixture
def bucket(minio_server: MinioServer, endpoint: Any, unique_name: str) -> str:
    endpoint(minio_server)
    return minio_server.create_bucket(unique_name)


# --- races ----------------------------------------------------------------------------------------------------

_RACER = """
import sys
from millstream.storage.store import open_store
store, me = open_store(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
for line in sys.stdin:
    print(store.create(line.strip(), me.encode()), flush=True)
"""


def test_exactly_one_of_many_concurrent_creators_wins_each_of_a_hundred_races(bucket: str) -> None:
    url = f"s3://{bucket}/races"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACER, url, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in range(4)
    ]
    store = open_store(url)
    try:
        for racer in racers:
            assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
        for race in range(100):
            name = f"manifests/{race:06d}.json"
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write(name + "\n")
                racer.stdin.flush()
            answers = [racer.stdout.readline().strip() for racer in racers if racer.stdout is not None]
            assert sorted(answers) == ["False", "False", "False", "True"], f"race {race}: {answers}"
            assert store.get(name) == str(answers.index("True")).encode()
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()


# --- unsupported services -------------------------------------------------------------------------------------


def test_a_service_that_ignores_conditional_requests_is_rejected(
    moto_server: MotoServer, endpoint: Any, unique_name: str
) -> None:
    moto_server.client("s3").create_bucket(Bucket=unique_name)
    strips = lambda request: Fate(without=("if-none-match",))  # noqa: E731 - moto does not look at signatures
    with HttpProxy(moto_server.port, strips) as proxy:
        endpoint(moto_server, proxy.url)
        with pytest.raises(StoreError, match=r"ignores the condition .* two drivers could both commit\. Use a service"):
            open_store(f"s3://{unique_name}/job").check_writable()
    endpoint(moto_server)
    open_store(f"s3://{unique_name}/job").check_writable()


def test_a_service_without_conditional_requests_is_rejected(
    minio_server: MinioServer, endpoint: Any, bucket: str
) -> None:
    body = b"<Error><Code>NotImplemented</Code><Message>A header you provided implies more.</Message></Error>"
    rule = lambda request: Fate(status=501, body=body) if "if-none-match" in request.headers else Fate()  # noqa: E731
    with HttpProxy(minio_server.port, rule) as proxy:
        endpoint(minio_server, proxy.url)
        with pytest.raises(
            StoreError, match=r"has no conditional put, so two drivers could both commit\. Use a service"
        ):
            open_store(f"s3://{bucket}/job").check_writable()


def _error(store: str) -> str:
    """The error that a user gets on starting a job there, within minutes on a busy machine."""
    env = StreamExecutionEnvironment.get_execution_environment(Configuration().set_string("millstream.store", store))
    env.add_source(Script([1, 2, 3]), "numbers").sink_to(Collect())
    started = time.monotonic()
    with pytest.raises(StoreError) as raised:
        Launch(ManualClock(), LocalRunner(), open_store(store)).prepare(env._graph("numbers"), env._job_settings())
    assert time.monotonic() - started < PATIENCE_S
    assert raised.value.__cause__ is None or SECRET not in repr(raised.value.__cause__)
    return str(raised.value)


def test_bucket_and_credential_errors_are_one_sentence_without_secrets(
    bucket: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told = [_error("s3://there-is-no-such-bucket/job")]
    assert told[-1] == (
        "Store s3://there-is-no-such-bucket/job: there is no bucket 'there-is-no-such-bucket'. Create it, or correct "
        "the address."
    )
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-" + SECRET)
    told.append(_error(f"s3://{bucket}/job"))
    assert "was refused by the service (SignatureDoesNotMatch: " in told[-1] and "Check the credentials" in told[-1]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "wrong-id-of-nobody")
    told.append(_error(f"s3://{bucket}/job"))
    assert "(InvalidAccessKeyId: " in told[-1]
    for text in (*told, caplog.text):
        assert SECRET not in text and "wrong-id-of-nobody" not in text and "<" not in text.replace("<class", "")
    with pytest.raises(ConfigurationError, match="credentials in it") as raised:
        open_store(f"s3://millstream-key:{SECRET}@{bucket}/job")
    assert SECRET not in str(raised.value)


@pytest.mark.slow
def test_an_unreachable_service_is_reported_in_bounded_time(
    minio_server: MinioServer, bucket: str, endpoint: Any
) -> None:
    with TcpProxy(minio_server.port) as proxy:
        endpoint(minio_server, f"http://{proxy.address}")
        proxy.cut()
        assert "cannot be reached" in _error(f"s3://{bucket}/job")
        proxy.mend()
        proxy.stall()
        assert "cannot be reached" in _error(f"s3://{bucket}/job")
        proxy.mend()
        open_store(f"s3://{bucket}/job").check_writable()


# --- slow and failing -----------------------------------------------------------------------------------------


def _trouble(seed: int, share: float) -> Any:
    """Of this share of requests, some are late, some answered with 500 or 503, some cut before or after they were
    executed.
    """
    chance, lock = random.Random(seed), threading.Lock()
    fates = (
        Fate(delay_ms=60),
        Fate(status=500),
        Fate(status=503, body=b"<Error><Code>SlowDown</Code><Message>Please reduce your rate</Message></Error>"),
        Fate(cut="before"),
        Fate(cut="after"),
        Fate(delay_ms=30, cut="after"),
    )

    def rule(request: Request) -> Fate:
        with lock:
            return chance.choice(fates) if chance.random() < share else Fate()

    return rule


def test_a_create_whose_response_was_lost_is_recognised_as_ours(
    minio_server: MinioServer, bucket: str, endpoint: Any
) -> None:
    lost = iter([Fate(cut="after"), Fate(), Fate()])
    with HttpProxy(minio_server.port, lambda request: next(lost)) as proxy:
        endpoint(minio_server, proxy.url)
        assert with_patience(open_store(f"s3://{bucket}/a")).create("manifests/1.json", b"mine") is True
    assert [request.method for request in proxy.requests] == ["PUT", "PUT", "GET"]


def test_a_conflict_of_two_conditional_requests_is_retried(
    minio_server: MinioServer, bucket: str, endpoint: Any
) -> None:
    body = b"<Error><Code>ConditionalRequestConflict</Code><Message>Try again.</Message></Error>"
    answers = iter([Fate(status=409, body=body), Fate(status=409, body=body), Fate()])
    with HttpProxy(minio_server.port, lambda request: next(answers)) as proxy:
        endpoint(minio_server, proxy.url)
        assert with_patience(open_store(f"s3://{bucket}/a")).create("manifests/1.json", b"mine") is True


def test_a_failing_store_is_still_consistent(minio_server: MinioServer, bucket: str, endpoint: Any) -> None:
    """Compared with a model: written files exist, and one of two creators wins, though a third of the requests fail."""
    with HttpProxy(minio_server.port, _trouble(3, 0.3)) as proxy:
        endpoint(minio_server, proxy.url)
        store = with_patience(open_store(f"s3://{bucket}/a"), 60.0)
        model: dict[str, bytes] = {}
        chance = random.Random(5)
        for step in range(150):
            name, data = f"f/{chance.randrange(12)}", str(step).encode()
            act = chance.choice(("put", "create", "delete", "get", "list"))
            if act == "put":
                store.put(name, data)
                model[name] = data
            elif act == "create":
                assert store.create(name, data) is (name not in model), (step, name)
                model.setdefault(name, data)
            elif act == "delete":
                store.delete(name)
                model.pop(name, None)
            elif act == "get":
                assert store.exists(name) is (name in model)
                assert name not in model or store.get(name) == model[name]
            else:
                assert store.list("f") == sorted(model)
    failures = [request for request in proxy.requests if request.number]
    assert len(failures) > 150, "nothing was asked twice: the proxy let everything through"


def _counting_job(store: Store, count: int, out: Collect, tier: Path | str = "off", **settings: str) -> Any:
    items = [item for n in range(count) for item in ((f"k{n % 5}", n), (f"k{n % 3}", 1), EPOCH)]
    env = StreamExecutionEnvironment.get_execution_environment()
    configuration = Configuration().set_string("millstream.tier.folder", str(tier))
    for key, value in settings.items():
        configuration.set_string(f"millstream.{key.replace('_', '.', 1).replace('_', '-')}", value)
    env.set_parallelism(2).configure(configuration)
    words = Types.TUPLE([Types.STRING(), Types.LONG()])
    read = env.add_source(Script(items, type_info=words), "numbers").uid("numbers")
    read.key_by(lambda record: record[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sums").sink_to(out).uid("out")
    return Launch(ManualClock(), LocalRunner(), store).prepare(env._graph("numbers"), env._job_settings())


def _expected(count: int) -> Counter[tuple[str, int]]:
    sums: Counter[str] = Counter()
    told = []
    for n in range(count):
        for key, value in ((f"k{n % 5}", n), (f"k{n % 3}", 1)):
            sums[key] += value
            told.append((key, sums[key]))
    return Counter(told)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_job_with_a_slow_and_failing_store_loses_nothing(
    seed: int, minio_server: MinioServer, bucket: str, endpoint: Any, tmp_path: Path
) -> None:
    out = Collect()
    with HttpProxy(minio_server.port, _trouble(seed, 0.15)) as proxy:
        endpoint(minio_server, proxy.url)
        job = _counting_job(open_store(f"s3://{bucket}/job"), 25, out, tmp_path / "tier" if seed == 1 else "off")
        job.start()
        assert job.wait(120)
        job.result()
    assert Counter(map(tuple, out.values)) == _expected(25)


def test_a_permanent_outage_fails_in_bounded_time(minio_server: MinioServer, bucket: str, endpoint: Any) -> None:
    with HttpProxy(minio_server.port) as proxy:
        endpoint(minio_server, proxy.url)
        store = with_patience(open_store(f"s3://{bucket}/a"), 2.0)
        store.put("a", b"1")
        proxy.rule = lambda request: Fate(status=503)
        started = time.monotonic()
        with pytest.raises(StoreAwayError, match="it answered with status 503"):
            store.get("a")
        assert time.monotonic() - started < PATIENCE_S
        proxy.rule = lambda request: Fate()
        assert store.get("a") == b"1"


# --- cost -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tier", "requests_max"), [("off", 5.0), ("on", 2.5)])
def test_an_epoch_of_a_small_steady_job_makes_few_requests_and_reports_their_number(
    tier: str, requests_max: float, minio_server: MinioServer, bucket: str, endpoint: Any, tmp_path: Path
) -> None:
    out = Collect()
    with HttpProxy(minio_server.port) as proxy:
        endpoint(minio_server, proxy.url)
        store = open_store(f"s3://{bucket}/job")
        before = REQUESTS.unclaimed()
        # An epoch for each record, each committed before the next: a commit that waits for files polls for them, too.
        job = _counting_job(store, 40, out, "off" if tier == "off" else tmp_path, ahead_max_epochs="0")
        job.start()
        assert job.wait(120)
        job.result()
        requests = list(proxy.requests)
        log = ManifestLog(store)
        told = [statistics_of(log.read(epoch)) or {} for epoch in log.epochs()]
    counts = [one["requests"] for one in told if "requests" in one]
    assert len(counts) >= 9, "the epochs that are kept"
    # The manifest and a check for rivals; another check before publishing, a receipt after it. Publishing overlaps with
    # the next epoch, so one epoch may report requests of another.
    assert abs(sum(count["driver"] for count in counts) - 4 * len(counts)) <= 4
    # A segment each, and without a tier a read of it; compaction now and then.
    assert sum(count["tasks"] for count in counts) / len(counts) <= requests_max
    assert all(count["tasks"] <= 12 for count in counts)
    made = REQUESTS.unclaimed() - before
    assert made <= len(requests), "what was counted was made"
    targets = [(one.method, one.target.partition(f"{bucket}/job/")[2].partition("/")[0]) for one in requests]
    kinds = Counter(targets)
    assert kinds["PUT", "manifests"] <= 42 and kinds["PUT", "receipts"] <= 42 and not kinds["GET", "manifests"]
    assert len(requests) <= 40 * (4 + requests_max) + 30, kinds
    assert tier == "off" or not kinds["GET", "segments"]


def test_an_epoch_that_runs_ahead_makes_one_more_request_per_new_file(
    minio_server: MinioServer, bucket: str, endpoint: Any, tmp_path: Path
) -> None:
    out = Collect()
    with HttpProxy(minio_server.port) as proxy:
        endpoint(minio_server, proxy.url)
        job = _counting_job(open_store(f"s3://{bucket}/job"), 40, out, tmp_path)
        job.start()
        assert job.wait(120)
        job.result()
        requests = list(proxy.requests)
    assert Counter(map(tuple, out.values)) == _expected(40)
    targets = [(one.method, one.target.partition(f"{bucket}/job/")[2].partition("/")[0]) for one in requests]
    kinds = Counter(targets)
    sent = kinds["PUT", "segments"] + kinds["PUT", "staged"]
    # A missing file is polled for again, with growing pauses.
    assert kinds["HEAD", "segments"] + kinds["HEAD", "staged"] <= 4 * sent, kinds
    assert kinds["PUT", "manifests"] <= 42 and not kinds["GET", "segments"], kinds


def test_counted_requests_match_those_the_service_receives(
    minio_server: MinioServer, bucket: str, endpoint: Any
) -> None:
    with HttpProxy(minio_server.port) as proxy:
        endpoint(minio_server, proxy.url)
        store, before = open_store(f"s3://{bucket}/a"), REQUESTS.of_thread()
        store.put("small", b"1")
        store.put("whole", bytes(12 << 20))
        store.put("large", bytes(20 << 20))
        store.create("new", b"1")
        store.create("new", b"1")
        with ThreadPoolExecutor(1) as elsewhere:
            elsewhere.submit(store.get, "small").result()
        store.get_range("large", 5, 10)
        store.exists("nothing")
        store.list("")
        store.delete_many(store.list(""))
        assert REQUESTS.of_thread() - before == len(proxy.requests) - 1, [
            (one.method, one.target) for one in proxy.requests
        ]


@pytest.mark.parametrize("setting", [None, "false", "true"])
def test_without_tls_payload_digests_are_signed_unless_configured_otherwise(
    minio_server: MinioServer, bucket: str, endpoint: Any, monkeypatch: pytest.MonkeyPatch, setting: str | None
) -> None:
    if setting is not None:
        monkeypatch.setenv("AWS_UNSIGNED_PAYLOAD", setting)
    data = b"abc" * 6_000_000  # in parts
    with HttpProxy(minio_server.port) as proxy:
        endpoint(minio_server, proxy.url)
        store = open_store(f"s3://{bucket}/signed")
        store.put("large", data)
        assert store.create("small", b"1")
        assert store.get("large") == data
        puts = [request.headers["x-amz-content-sha256"] for request in proxy.requests if request.method == "PUT"]
    assert len(puts) == 5 and {digest == "UNSIGNED-PAYLOAD" for digest in puts} == {setting == "true"}


def test_over_tls_payload_digests_are_not_signed_unless_configured_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for endpoint_url in (None, "https://minio.example:9000"):
        if endpoint_url is not None:
            monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint_url)
        assert connect("s3://bucket/job").config["unsigned_payload"] == "true"
    monkeypatch.setenv("AWS_UNSIGNED_PAYLOAD", "false")
    assert "unsigned_payload" not in connect("s3://bucket/job").config


def test_folders_cost_no_requests(tmp_path: Path) -> None:
    before = REQUESTS.unclaimed()
    job = _counting_job(open_store(str(tmp_path)), 12, Collect())
    job.start()
    assert job.wait(60)
    job.result()
    assert REQUESTS.unclaimed() == before
    manifest = max((tmp_path / "manifests").glob("*.json"))
    assert "requests" not in json.loads(manifest.read_bytes())["counters"]["epoch"]
