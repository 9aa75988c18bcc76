"""Writes records to a Kinesis stream or a Firehose delivery stream, after their epoch is committed: at least once.

Neither service can recognise repeated records, so records sent just before a crash are sent again after it.
A request carries many records, and some of them may fail while others are accepted; failed ones are sent again,
possibly after later records of their key. A record that is too large is an error in the task, before the epoch is
committed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.common.serialization import SerializationSchema
from millstream.connectors.contracts import CommitId, Json, RestorePoint, Sink, SinkWriter, WriterContext
from millstream.connectors.kinesis.clients import PATIENCE_S, AwsAddress, call_with_retries, client_of
from millstream.connectors.messages.codecs import encoder_of
from millstream.connectors.staged_columns import StagedColumns, read_staged_columns
from millstream.errors import ConnectorAwayError, ProgramError
from millstream.records.batch import Batch
from millstream.storage.store import Store

__all__ = ["FIREHOSE", "STREAMS", "AwsSink", "KeyRule", "SendLimits", "Service"]

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_KEY_CHARACTERS_MAX = 256

KeyRule = str | Callable[[Any], str]
"""The partition keys of records: "fixed" (one per subtask), "random", or a function of the record."""


@dataclass(frozen=True)
class SendLimits:
    """The limits of one request."""

    records: int = 500
    size_bytes: int = 5 * 1024 * 1024
    record_bytes: int = 1024 * 1024


@dataclass(frozen=True)
class Service:
    """The differences between Kinesis and Firehose. `limits` are the maxima of AWS."""

    name: str
    title: str
    limits: SendLimits

    @property
    def has_keys(self) -> bool:
        return self.name == "kinesis"

    def check(self, client: Any, stream: str) -> Any:
        if self.has_keys:
            return client.describe_stream_summary(StreamName=stream)
        return client.describe_delivery_stream(DeliveryStreamName=stream)

    def send(self, client: Any, stream: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One result per record; one with an `ErrorCode` was not accepted."""
        if self.has_keys:
            responses = client.put_records(StreamName=stream, Records=records)["Records"]
        else:
            responses = client.put_record_batch(DeliveryStreamName=stream, Records=records)["RequestResponses"]
        return list(responses)


STREAMS = Service("kinesis", "Kinesis stream", SendLimits())
FIREHOSE = Service("firehose", "Firehose delivery stream", SendLimits(500, 4 * 1024 * 1024, 1000 * 1024))


class AwsSink(Sink):
    """Writes records encoded by `schema`, to `stream` of `service`. `is_strict`: a failed record fails the commit."""

    guarantee = "at-least-once"

    def __init__(
        self,
        service: Service,
        address: AwsAddress,
        stream: str,
        schema: SerializationSchema,
        *,
        key_rule: KeyRule = "random",
        limits: SendLimits | None = None,
        is_strict: bool = False,
    ) -> None:
        self._service, self._address, self._stream, self._schema = service, address, stream, schema
        self._key_rule, self._limits, self._is_strict = key_rule, limits or service.limits, is_strict

    @property
    def _subject(self) -> str:
        return f"{self._service.title} {self._stream!r} at {self._address.place}"

    def opened(self, session: Any) -> Sink:
        client = client_of(self._address, self._service.name)
        call_with_retries(self._subject, self._service.check, client, self._stream)
        return self

    def writer(self, context: WriterContext) -> SinkWriter:
        return _RecordWriter(self._schema, self._key_rule, self._limits, self._subject, context)

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        records = (
            record
            for staged in publish
            for columns in read_staged_columns(staged, store)
            for record in self._records(columns)
        )
        for batch in _batches(records, self._limits):
            self._send(batch)

    def _records(self, columns: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        data = (value or b"" for value in columns.column("data").to_pylist())
        if not self._service.has_keys:
            return ({"Data": each} for each in data)
        keys = columns.column("key").to_pylist()
        return ({"Data": each, "PartitionKey": key} for each, key in zip(data, keys, strict=True))

    def _send(self, records: list[dict[str, Any]]) -> None:
        """Send until all records are accepted. Every accepted record resets the time limit for the others."""
        client, pause_s, deadline_s = client_of(self._address, self._service.name), _FIRST_PAUSE_S, _deadline_s()
        while True:
            responses = call_with_retries(self._subject, self._service.send, client, self._stream, records)
            failed = [
                (record, result) for record, result in zip(records, responses, strict=True) if result.get("ErrorCode")
            ]
            if not failed:
                return
            if len(failed) < len(records):
                pause_s, deadline_s = _FIRST_PAUSE_S, _deadline_s()
            if self._is_strict or time.monotonic() + pause_s > deadline_s:
                raise ConnectorAwayError(
                    f"{self._subject} does not accept {len(failed)} records ({failed[0][1]['ErrorCode']}). They are "
                    f"sent again when the job is restarted. If it is throttled, add shards"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            records = [record for record, _ in failed]

    def after_restore(self, pending: Json, point: RestorePoint) -> tuple[Json, str]:
        return pending, "output sent after that epoch remains sent, and is repeated"

    def describe(self) -> str:
        return self._subject


def _deadline_s() -> float:
    return time.monotonic() + PATIENCE_S


def _batches(records: Iterator[dict[str, Any]], limits: SendLimits) -> Iterator[list[dict[str, Any]]]:
    """The records in order, divided by the request limits.

    >>> [len(batch) for batch in _batches(iter([{"Data": b"abc"}] * 5), SendLimits(3, 6, 6))]
    [2, 2, 1]
    """
    batch: list[dict[str, Any]] = []
    size = 0
    for record in records:
        record_size = _size(record)
        if batch and (len(batch) >= limits.records or size + record_size > limits.size_bytes):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += record_size
    if batch:
        yield batch


def _size(record: dict[str, Any]) -> int:
    """The size that AWS counts: data and key."""
    return len(record["Data"]) + len(record.get("PartitionKey", "").encode())


class _RecordWriter(SinkWriter):
    def __init__(
        self, schema: SerializationSchema, rule: KeyRule, limits: SendLimits, subject: str, context: WriterContext
    ) -> None:
        self._encoder, self._staged = encoder_of(schema, context.input_type), StagedColumns(context)
        self._rule, self._limits, self._subject = rule, limits, subject
        self._fixed_key = f"{context.uid}-{context.subtask}"[-_KEY_CHARACTERS_MAX:]

    def write(self, batch: Batch) -> None:
        data, keys = self._encoder.encode(batch), self._keys(batch)
        for value, key in zip(data, keys, strict=True):
            size = (len(value.as_buffer()) if value.is_valid else 0) + len(key.encode())
            if size > self._limits.record_bytes:
                raise ProgramError(
                    f"{self._subject}: a record has {size} bytes with its key, but at most {self._limits.record_bytes} "
                    "are allowed. Write smaller records, or only a reference to the data"
                )
        self._staged.add(pa.RecordBatch.from_pydict({"data": data, "key": pa.array(keys, pa.string())}))

    def _keys(self, batch: Batch) -> list[str]:
        if self._rule == "fixed":
            return [self._fixed_key] * len(batch)
        if isinstance(self._rule, str):
            return [uuid.uuid4().hex for _ in range(len(batch))]
        keys = [self._rule(value) for value in batch.values()]
        for key in keys:
            if not isinstance(key, str) or not 1 <= len(key) <= _KEY_CHARACTERS_MAX:
                raise ProgramError(
                    f"{self._subject}: the partition key of a record is {key!r}, expected a string of 1 to "
                    f"{_KEY_CHARACTERS_MAX} characters"
                )
        return keys

    def stage(self) -> Sequence[Json]:
        return self._staged.stage()
