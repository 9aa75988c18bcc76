"""Publishes epochs to Kafka, one after the other, as a driver does after their manifests stand. To be killed.

    python kafka_publisher.py BOOTSTRAP TOPIC FOLDER JOB

Every epoch is the same for whoever publishes it: two lanes of keyed messages, "key,number". An epoch that is published
gets a receipt in the folder, a moment later; who starts goes on behind the newest receipt, and so repeats what was
published without one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from millstream.common.serialization import SerializationSchema, SimpleStringSchema
from millstream.common.typeinfo import Types
from millstream.connectors.contracts import CommitId, Json, WriterContext
from millstream.connectors.kafka import lanes
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.outgoing_messages import RecordSerializer
from millstream.connectors.kafka.sink import KafkaSink, kafka_sink
from millstream.errors import ConnectorAwayError
from millstream.records.batch import Batch
from millstream.storage.store import Store, open_store

EPOCHS = 60
RECORDS = 200
KEYS = 7


class Key(SerializationSchema):
    """What stands before the comma."""

    def serialize(self, value: str) -> bytes:
        return value.split(",")[0].encode()


def values_of(epoch: int, subtask: int) -> list[str]:
    """The messages of a task: each key belongs to one of two tasks."""
    numbers = range((epoch - 1) * RECORDS, epoch * RECORDS)
    return [f"{number % KEYS},{number:06}" for number in numbers if number % KEYS % 2 == subtask]


def expected() -> dict[str, list[str]]:
    """All messages of each key, in order."""
    numbers = range(EPOCHS * RECORDS)
    return {str(key): [f"{key},{number:06}" for number in numbers if number % KEYS == key] for key in range(KEYS)}


def staged(sink: KafkaSink, store: Store, epoch: int) -> list[Json]:
    items: list[Json] = []
    for subtask in (0, 1):
        writer = sink.writer(WriterContext("out", epoch, subtask, 2, f"e{epoch}", store, 0, Types.STRING(), "job"))
        writer.write(Batch.of_values(values_of(epoch, subtask), Types.STRING()))
        items.extend(writer.stage())
    # In one lane, or each task's in its own, epoch by epoch.
    lanes.DRIVER_BYTES_MAX, lanes.LANE_BYTES = (1 << 20, 1 << 22) if epoch % 3 else (0, 1)
    return list(sink.plan_commit(items, None, 0, False).publish)


def main(bootstrap: str, topic: str, folder: str, job: str) -> None:
    properties: dict[str, Any] = {"bootstrap.servers": bootstrap, "delivery.timeout.ms": 3_000}
    serializer = RecordSerializer(SimpleStringSchema(), Key(), topic)
    sink = kafka_sink(ClientSettings.of(properties), serializer, "exactly-once")
    store, receipts = open_store("memory://publisher"), Path(folder)
    print("READY", flush=True)
    done = {int(receipt.name) for receipt in receipts.iterdir()}
    for epoch in sorted(set(range(1, EPOCHS + 1)) - done):
        publish = staged(sink, store, epoch)
        # Read anew each time: a second publisher may have gone ahead.
        while not (receipts / str(epoch)).exists():
            try:
                sink.commit(CommitId(job, "out", epoch), publish, store)
                (receipts / str(epoch)).touch()
            except ConnectorAwayError as error:
                print(f"AGAIN {epoch} {error}", flush=True)
        print(f"EPOCH {epoch}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
