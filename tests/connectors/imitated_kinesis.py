"""An in-memory Kinesis that follows AWS's documentation where moto differs: resharding, retention, expired iterators,
throttling.

A closed shard retains its records, accepts no more, and ends with an iterator that is None. A response may be empty
although records follow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

__all__ = ["ImitatedKinesis", "aws_error"]


def aws_error(code: str, text: str = "", status: int = 400) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": text}, "ResponseMetadata": {"HTTPStatusCode": status}}, "x")


@dataclass
class _Shard:
    name: str
    parents: list[str] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    is_closed: bool = False


class ImitatedKinesis:
    """One stream. `failures` are raised by the next requests, one each; the next `blanks` responses are empty."""

    def __init__(self, shards: int = 1, now_ms: int = 1_000_000_000_000) -> None:
        self.shards = {name: _Shard(name) for name in (f"shardId-{n:012d}" for n in range(shards))}
        self.now_ms = now_ms
        self.retention_ms = 24 * 3_600_000
        self.failures: list[Exception] = []
        self.blanks = 0
        self.requests: list[str] = []
        self.taken: list[dict[str, Any]] = []
        self.refused_at: list[set[int]] = []
        self._next_number = 1

    # --- events ----------------------------------------------------------------------------------------------

    def add(self, shard: str, *values: str) -> None:
        assert not self.shards[shard].is_closed
        for value in values:
            self.shards[shard].records.append(
                {
                    "Data": value.encode(),
                    "PartitionKey": "k",
                    "SequenceNumber": str(49_000_000_000_000_000_000 + self._next_number),
                    "ApproximateArrivalTimestamp": datetime.fromtimestamp(self.now_ms / 1000, UTC),
                }
            )
            self._next_number += 1

    def reshard(self, parents: list[str], children: list[str]) -> None:
        for parent in parents:
            self.shards[parent].is_closed = True
        for child in children:
            self.shards[child] = _Shard(child, parents)

    def _retained(self, shard: str) -> list[dict[str, Any]]:
        oldest = datetime.fromtimestamp((self.now_ms - self.retention_ms) / 1000, UTC)
        return [record for record in self.shards[shard].records if record["ApproximateArrivalTimestamp"] >= oldest]

    # --- requests --------------------------------------------------------------------------------------------

    def _receive(self, name: str) -> None:
        self.requests.append(name)
        if self.failures:
            raise self.failures.pop(0)

    def describe_stream_summary(self, StreamName: str) -> dict[str, Any]:  # noqa: N803 - AWS's names
        self._receive("describe_stream_summary")
        return {"StreamDescriptionSummary": {"RetentionPeriodHours": self.retention_ms // 3_600_000}}

    def list_shards(self, StreamName: str = "", NextToken: str = "") -> dict[str, Any]:  # noqa: N803
        self._receive("list_shards")
        names = list(self.shards)
        at = int(NextToken or 0)
        shard = self.shards[names[at]]
        found: dict[str, Any] = {"ShardId": shard.name, "SequenceNumberRange": {"StartingSequenceNumber": "1"}}
        if shard.is_closed:
            found["SequenceNumberRange"]["EndingSequenceNumber"] = str(2**127)
        for key, parent in zip(("ParentShardId", "AdjacentParentShardId"), shard.parents, strict=False):
            found[key] = parent
        page: dict[str, Any] = {"Shards": [found]}
        return page if at + 1 == len(names) else {**page, "NextToken": str(at + 1)}

    def get_shard_iterator(self, **asked: Any) -> dict[str, Any]:
        self._receive("get_shard_iterator")
        kind, after = asked["ShardIteratorType"], -1
        if kind == "AFTER_SEQUENCE_NUMBER":
            after = int(asked["StartingSequenceNumber"])
        elif kind == "AT_SEQUENCE_NUMBER":
            after = int(asked["StartingSequenceNumber"]) - 1
        elif kind == "AT_TIMESTAMP":
            older = [
                int(record["SequenceNumber"])
                for record in self.shards[asked["ShardId"]].records
                if record["ApproximateArrivalTimestamp"] < asked["Timestamp"]
            ]
            after = max(older, default=-1)
        return {"ShardIterator": f"{asked['ShardId']}:{after}"}

    def get_records(self, ShardIterator: str, Limit: int) -> dict[str, Any]:  # noqa: N803
        self._receive("get_records")
        name, _, after = ShardIterator.partition(":")
        if self.blanks:
            self.blanks -= 1
            return {"Records": [], "NextShardIterator": ShardIterator, "MillisBehindLatest": 1000}
        rest = [record for record in self._retained(name) if int(record["SequenceNumber"]) > int(after)]
        records = rest[:Limit]
        last = records[-1]["SequenceNumber"] if records else after
        is_all = len(records) == len(rest)
        iterator = None if is_all and self.shards[name].is_closed else f"{name}:{last}"
        return {"Records": records, "NextShardIterator": iterator, "MillisBehindLatest": 0 if is_all else 1000}

    def put_records(self, StreamName: str, Records: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        self._receive("put_records")
        assert len(Records) <= 500
        refused = self.refused_at.pop(0) if self.refused_at else set()
        self.taken += [record for at, record in enumerate(Records) if at not in refused]
        taken = {"SequenceNumber": "1", "ShardId": "s"}
        failed = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "slow down"}
        return {"Records": [failed if at in refused else taken for at in range(len(Records))]}
