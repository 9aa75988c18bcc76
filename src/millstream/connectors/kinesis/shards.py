"""One shard: where reading stands in it, and how records are got from there.

A **position** is a JSON object:

    {"after": sequence number, "ms": …}     the record of that number is the last one read
    {"from": sequence number, "ms": …}      begin with that record
    {"at": "TRIM_HORIZON" or ms, "ms": …}   begin with the first record there will be, or with the first of that time
    … "ended": true                          the shard was closed, and all of it is read
    … "more": true                           records were seen behind it
    … "or_oldest": true                      if that record has aged out before it was read, begin with the oldest

`ms` bounds what may be lost: no record behind the position arrived before it, so while it is younger than the stream's
retention, nothing behind the position can have aged out. A shard that is quiet is looked at now and then to say so
again. Where `ms` is too old, the record at the position must still be there; else reading on would be a silent gap, for
Kinesis itself goes on with the oldest record it has.

How far an epoch may read is not known before: a **stop** is a position with `records`, how many to read at most.
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
    answer,
    client_of,
)
from millstream.errors import ConnectorError

__all__ = ["AGE_MARGIN_MS", "Answer", "Position", "Shard", "epoch_ms", "ms_of"]

Position = Json

AGE_MARGIN_MS = 300_000
"""Arrival times are approximate, and clocks differ."""
_RECORDS_MAX = 10_000
"""What Kinesis gives at once."""


@dataclass(frozen=True)
class Answer:
    """Some records, in order; whether they are all there is now, and whether the shard ends behind them."""

    records: list[dict[str, Any]]
    is_at_tip: bool
    is_at_end: bool


@dataclass(frozen=True)
class Shard:
    """A shard of a stream, and how to reach it."""

    address: AwsAddress
    stream: str
    name: str

    @property
    def subject(self) -> str:
        return f"Kinesis stream {self.stream!r} at {self.address.place}"

    def answers(self, position: Position, limit: int) -> Iterator[Answer]:
        """What stands behind `position`, request after request; whoever asks says when it is enough.

        An iterator of Kinesis' lives for five minutes. One that has expired is made anew behind the last record.
        """
        client, limit = client_of(self.address, "kinesis"), min(limit, _RECORDS_MAX)
        iterator = self._iterator(client, position)
        while iterator is not None:
            try:
                got = answer(self.subject, client.get_records, ShardIterator=iterator, Limit=limit)
            except IteratorExpiredError:
                iterator = self._iterator(client, position)
                continue
            records, iterator = got["Records"], got.get("NextShardIterator")
            if records:
                position = {"after": records[-1]["SequenceNumber"]}
            # Milliseconds do not tell of records that came within the same one: a full answer may have more behind it.
            is_at_tip = got.get("MillisBehindLatest", 0) == 0 and len(records) < limit
            yield Answer(records, is_at_tip, iterator is None)

    def has_more(self, position: Position) -> bool:
        """Whether there may be records behind `position`, by one look."""
        got = next(self.answers(position, 1), None)
        return got is not None and (bool(got.records) or not got.is_at_tip)

    def first(self, position: Position) -> Answer:
        """The first record behind `position` if there is one. Kinesis may answer with nothing before it comes to it."""
        last = Answer([], True, True)
        for got in self.answers(position, 1):
            last = got
            if got.records or got.is_at_tip:
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
        got = answer(self.subject, client.get_shard_iterator, **request)
        iterator: str | None = got["ShardIterator"]
        return iterator

    def check_kept(self, position: Position, retention_ms: int) -> None:
        """Raise an error if records behind `position` may have aged out."""
        if not self._is_kept(position, retention_ms):
            raise self._aged_out(position)

    def kept_or_oldest(self, position: Position, retention_ms: int) -> Position:
        """Where to begin: there, or where the shard begins now if that has aged out. The oldest records go all the
        time, and what nobody has read yet is no gap."""
        oldest = {"at": "TRIM_HORIZON", "ms": position["ms"]}
        return position if self._is_kept(position, retention_ms) else oldest

    def _is_kept(self, position: Position, retention_ms: int) -> bool:
        if epoch_ms() - position["ms"] <= retention_ms - AGE_MARGIN_MS:
            return True
        number = position.get("after", position.get("from"))
        if number is None:
            return False
        try:
            found = self.first({"from": number}).records
        except PlaceInvalidError:
            return False
        return bool(found) and found[0]["SequenceNumber"] == number

    def _aged_out(self, position: Position) -> ConnectorError:
        place = position.get("after", position.get("from", position.get("at")))
        return ConnectorError(
            f"{self.subject}, shard {self.name}: the job stands at {place}, which is older than the stream keeps "
            "records. What came behind it may have aged out unread. Lengthen the stream's retention for next time; to "
            "go on without what is lost, give the source another uid and start with --allow-non-restored-state"
        )

    def not_found(self, stop: Position) -> ConnectorError:
        return ConnectorError(
            f"{self.subject}, shard {self.name}: the record {stop['after']}, which was read before, is not there any "
            "more: it has aged out, or the stream was made anew under its name. This epoch cannot be read again"
        )


def epoch_ms() -> int:
    """Now, as records have it."""
    return time.time_ns() // 1_000_000


def ms_of(record: dict[str, Any]) -> int:
    """When a record arrived."""
    moment: datetime = record["ApproximateArrivalTimestamp"]
    return round(moment.timestamp() * 1000)
