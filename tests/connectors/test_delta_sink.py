"""A Delta table on a real S3 (MinIO): exactly once through crashes and races, readable by others; errors are
reported.
"""

from __future__ import annotations

import threading

import pytest
from deltalake import DeltaTable
from s3_buckets import Bucket

from millstream.common import Row, Types
from millstream.connectors.contracts import CommitId, WriterContext
from millstream.connectors.delta.sink import DeltaTableSink
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.delta import DeltaSink
from millstream.errors import StoreError
from millstream.records.batch import Batch
from millstream.storage.store import open_store
from millstream.testing import CRASH, Script, run

SALE = Types.ROW_NAMED(["shop", "cents"], [Types.STRING(), Types.LONG()])


def cents(url: str) -> list[int]:
    return sorted(DeltaTable(url).to_pyarrow_table()["cents"].to_pylist())


def test_a_job_appends_each_epoch_once_through_crashes(bucket: Bucket) -> None:
    url = f"{bucket.url}/tables/sales"

    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.add_source(Script([1, 2, CRASH, 3, 4, CRASH, 5]))
        rows = numbers.map(lambda n: Row(f"shop {n % 2}", n), SALE)
        rows.sink_to(DeltaSink.for_row_type(url, SALE).with_partition_columns("shop").build()).uid("sales")

    result = run(build, parallelism=2)
    assert cents(url) == [1, 2, 3, 4, 5]
    assert DeltaTable(url).version() == result.epochs
    assert DeltaTable(url).to_pandas().groupby("shop").cents.sum().to_dict() == {"shop 0": 6, "shop 1": 9}
    assert {key.split("/")[2] for key in bucket.keys("tables/")} == {"_delta_log", "shop=shop=200", "shop=shop=201"}


def test_racing_drivers_append_each_epoch_once(bucket: Bucket) -> None:
    url = f"{bucket.url}/raced"
    sink = DeltaTableSink(url, SALE).opened(None)
    epochs = {}
    for epoch in range(1, 9):
        store = open_store("memory://delta-race")
        writer = sink.writer(WriterContext("out", epoch, 0, 1, "n", store, 0, SALE, "j1"))
        writer.write(Batch.of_values([("a", epoch)], SALE))
        epochs[epoch] = list(writer.stage())
    errors: list[BaseException] = []

    def drive() -> None:
        try:
            driver = DeltaTableSink(url, SALE).opened(None)
            for epoch, staged in epochs.items():
                plan = driver.plan_commit(staged, None, 0, False)
                driver.commit(CommitId("j1", "out", epoch), plan.publish, open_store("memory://delta-race"))
        except BaseException as error:
            errors.append(error)

    drivers = [threading.Thread(target=drive) for _ in range(4)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert errors == [] and cents(url) == list(epochs)


def test_a_missing_bucket_and_wrong_credentials_are_reported_without_the_secret(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="Delta sink cannot write to s3://no-such-bucket-here/t"):
        DeltaTableSink("s3://no-such-bucket-here/t", SALE).opened(None)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret-at-all")
    with pytest.raises(StoreError, match=bucket.name) as refusal:
        DeltaTableSink(f"{bucket.url}/t", SALE).opened(None)
    assert "not-the-secret-at-all" not in str(refusal.value)
