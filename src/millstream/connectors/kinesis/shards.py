"""Positions in a shard, and reads of its records.

A **position** is a JSON object:

    {"after": sequence number, "ms": …}     the record with that number is the last one read
    {"from": sequence number, "ms": …}      start with that record
    {"at": "TRIM_HORIZON" or ms, "ms": …}   start with the first record available, or with the first at that time
    … "ended": true                          the shard is closed, and completely read
    … "more": true                           there are records after it
    … "or_oldest": true                      if that record has expired before it was read, start with the oldest

`ms` bounds possible loss: no record after the position arrived before it, so while it is younger than the stream's
retention, no record after the position can have expired. A quiet shard is read occasionally to renew the bound. If `ms`
is too old, the record at the position must still exist; otherwise continuing would leave a silent gap, because Kinesis
itself continues with its oldest record.

How far an epoch may read is not known in advance: a **stop** is a position with `records`, the maximum number to read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from millstream.connectors.contracts import Json
from millstream.connectors.kinesis.clients import (
    AwsAddress,
    IteratorExpiredError,
    PlaceInvalidError,
    call_with_retries,
    client_of,
)
from millstream.errors import ConnectorError

__all__ = ["AGE_MARGIN_MS", "Position", "Response", "Shard", "epoch_ms", "ms_of"]

Position = Json

AGE_MARGIN_MS = 300_000
"""Arrival times are approximate, and clocks differ."""
_RECORDS_MAX = 10_000
"""The maximum number of records per response."""


@dataclass(frozen=True)
class Response:
    """Some records, in order; whether no more are available, and whether the shard ends after them."""

    records: list[dict[str, Any]]
    is_at_tip: bool
    is_at_end: bool


@dataclass(frozen=True)
class Shard:
    """A shard of a stream, and its address."""

    address: AwsAddress
    stream: str
    name: str

    @property
    def subject(self) -> str:
        return f"Kinesis stream {self.stream!r} at {self.address.place}"

    def responses(self, position: Position, limit: int) -> Iterator[Response]:
        """Responses with the records after `position`, one request after the other, until the caller stops.

        A Kinesis iterator lives for five minutes. An expired one is replaced by a new one after the last record.
        """
        client, limit = client_of(self.address, "kinesis"), min(limit, _RECORDS_MAX)
        iterator = self._iterator(client, position)
        while iterator is not None:
            try:
                response = call_with_retries(self.subject, client.get_records, ShardIterator=iterator, Limit=limit)
            except IteratorExpiredError:
                iterator = self._iterator(client, position)
                continue
            records, iterator = response["Records"], response.get("NextShardIterator")
            if records:
                position = {"after": records[-1]["SequenceNumber"]}
            # Several records may arrive in the same millisecond: more may follow a full response.
            is_at_tip = response.get("MillisBehindLatest", 0) == 0 and len(records) < limit
            yield Response(records, is_at_tip, iterator is None)

    def has_more(self, position: Position) -> bool:
        """Whether there may be records after `position`, by one request."""
        response = next(self.responses(position, 1), None)
        return response is not None and (bool(response.records) or not response.is_at_tip)

    def first(self, position: Position) -> Response:
        """The first record after `position`, if any. Kinesis may return empty responses before it."""
        last = Response([], True, True)
        for response in self.responses(position, 1):
            last = response
            if response.records or response.is_at_tip:
                break
        return last

    def _iterator(self, client: Any, position: Position) -> str | None:
        request: dict[str, Any] = {"StreamName": self.stream, "ShardId": self.name}
        if "after" in position:
            request |= {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": position["after"]}
        elif "from" in position:
            request |= {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": position["from"]}
        elif position["at"] == "TRIM_HORIZON":
            request |= {"ShardIteratorType": "TRIM_HORIZON"}
        else:
            moment = datetime.fromtimestamp(position["at"] / 1000, UTC)
            request |= {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": moment}
        response = call_with_retries(self.subject, client.get_shard_iterator, **request)
        iterator: str | None = response["ShardIterator"]
        return iterator

    def check_retained(self, position: Position, retention_ms: int) -> None:
        """Raise an error if records after `position` may have expired."""
        if not self._is_retained(position, retention_ms):
            raise self._aged_out(position)

    def retained_or_oldest(self, position: Position, retention_ms: int) -> Position:
        """The position, or the current start of the shard if the position has expired. For records that were never
        read, this is not a gap: the oldest records expire continuously."""
        oldest = {"at": "TRIM_HORIZON", "ms": position["ms"]}
        return position if self._is_retained(position, retention_ms) else oldest

    def _is_retained(self, position: Position, retention_ms: int) -> bool:
        if epoch_ms() - position["ms"] <= retention_ms - AGE_MARGIN_MS:
            return True
        number = position.get("after", position.get("from"))
        if number is None:
            return False
        try:
            records = self.first({"from": number}).records
        except PlaceInvalidError:
            return False
        return bool(records) and records[0]["SequenceNumber"] == number

    def _aged_out(self, position: Position) -> ConnectorError:
        place = position.get("after", position.get("from", position.get("at")))
        return ConnectorError(
            f"{self.subject}, shard {self.name}: the job's position is {place}, which is older than the stream's "
            "retention. Later records may have expired unread. Extend the stream's retention for next time; to "
            "continue without the lost records, give the source another uid and start with --allow-non-restored-state"
        )

    def missing_record_error(self, stop: Position) -> ConnectorError:
        return ConnectorError(
            f"{self.subject}, shard {self.name}: the record {stop['after']}, which was read before, no longer exists: "
            "it has expired, or the stream was created again under its name. This epoch cannot be read again"
        )


def epoch_ms() -> int:
    """The current time, comparable to arrival times."""
    return time.time_ns() // 1_000_000


def ms_of(record: dict[str, Any]) -> int:
    """The arrival time of a record."""
    moment: datetime = record["ApproximateArrivalTimestamp"]
    return round(moment.timestamp() * 1000)
