"""A source that reads any Spark DataFrame, static or streaming, through the job's store.

A DataFrame need not return the same rows when it is recomputed, and a stream advances; stored rows are stable. So Spark
first writes rows to the store, and the job reads them there as often as necessary.

Static: the DataFrame is computed once, at the first start of the job; a restarted job reads the stored rows.
Streaming: a Spark query, with its own checkpoint in the same store, provides numbered batches; a batch is stored
once although Spark provides it again after a crash, so each row enters the job exactly once. The query waits while too
many batches are unread, and batches that every retained epoch has read are removed.

A job that was forked, or restored into another store, reads the batches stored by its original job, where
they are, and continues with its own query after the last of them. That query must start with the row
after the last inherited batch, without affecting the query of the original. So the original's checkpoint is copied as
of that batch (`inherit_checkpoint`): the logs of offsets and commits up to it, all state of the query's sources and
operators, and another id, because Spark refuses two queries with one id. Files that Spark has since written there
belong to later batches, which are addressed by number, so they are harmless.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.connectors.batch_series import InheritedBatches, scratch_folder
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.connectors.spark_store import spark_url, type_of_spark_schema
from millstream.connectors.stored_batches import StoredBatches, read_stored
from millstream.errors import JobFailedError, NotAvailableError, ProgramError, StoreError
from millstream.storage.store import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["CHECKPOINT", "SparkFrameSource", "inherit_checkpoint", "type_of_spark_schema"]

_UNREAD_BATCHES_MAX = 8
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"


class SparkFrameSource(Source):
    """The rows of `df` as records of a ROW type.

    `name` is the input's folder in the store: stable across runs, and unique for each DataFrame of a job.
    `trigger` is for a streaming DataFrame, as in Spark; `{"availableNow": True}` reads the available rows and ends.
    """

    def __init__(
        self,
        df: DataFrame,
        type_info: TypeInformation | None = None,
        name: str = "frame",
        trigger: Mapping[str, Any] | None = None,
        unread_batches_max: int = _UNREAD_BATCHES_MAX,
    ) -> None:
        frame_type = type_of_spark_schema(df.schema)
        self.type_info: TypeInformation = frame_type if type_info is None else _checked_type(type_info, df)
        self.name = name
        self.streaming = bool(df.isStreaming)
        self.trigger = dict(trigger or {})
        self.unread_batches_max = max(1, unread_batches_max)
        if self.trigger and not self.streaming:
            raise ProgramError(
                f"from_spark: trigger {self.trigger} is for streaming, but this DataFrame is static. Remove it."
            )
        ends = bool(self.trigger.get("availableNow") or self.trigger.get("once"))
        self.bounded = ends or not self.streaming
        self._df: DataFrame | None = df
        self._batches: StoredBatches | None = None
        self._query: StreamingQuery | None = None
        self._claim: tuple[str, str] | None = None
        self._has_ended = not self.streaming

    def __getstate__(self) -> dict[str, Any]:
        # A task reads stored files; all references to Spark stay on the driver.
        return {**self.__dict__, "_df": None, "_batches": None, "_query": None, "_claim": None}

    def opened(self, store: Store, session: Any) -> Source:
        assert self._df is not None, "a source is opened on the driver"
        source = SparkFrameSource(self._df, self.type_info, self.name, self.trigger, self.unread_batches_max)
        source._claim = _claim_name(store.url, self.name)
        try:
            source._batches = batches = StoredBatches(store, self.name, self.type_info)
            if self.streaming and batches.is_new and batches.series.inherits:
                inherit_checkpoint(self.name, batches.series.inherits[-1], store, batches.scratch(CHECKPOINT))
            batches.begin()
            if self.streaming:
                source._start_query(store)
            elif not batches.has(0):
                _write(self._df, self._names(), spark_url(store, batches.folder(0)))
                batches.add(0)
        except BaseException:
            source.close()
            raise
        return source

    def reopened(self, store: Store, session: Any) -> Source:
        if self.streaming:
            raise NotAvailableError(
                f"from_spark: input of the streaming DataFrame {self.name!r} is stored only while an epoch needs it to "
                "continue, so an epoch that read it cannot be replayed. Run the job with millstream.record on: then "
                "its input is stored with its epochs"
            )
        return self.opened(store, session)

    def splits(self, context: SourceContext) -> Sequence[Split]:
        assert self._batches is not None, "the source is not opened"
        if self._query is not None:
            # Checked before the batches are listed: a query that has ended adds none afterwards.
            self._has_ended = not self._query.isActive
            self._raise_failure()
        return self._batches.splits()

    def complete(self, context: SourceContext) -> bool:
        return self._has_ended

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        return min(split.info["end"], offset + budget)

    def finished(self, split: Split, offset: Offset) -> bool:
        return bool(offset >= split.info["end"])

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        return (yield from read_stored(split, start, stop, self.type_info))

    def committed(self, positions: dict[str, Offset]) -> None:
        if self._batches is not None:
            self._batches.committed(positions)

    def released(self, retained_positions: Sequence[dict[str, Offset]]) -> None:
        if self._batches is not None and self.streaming:
            self._batches.released(retained_positions)

    def close(self) -> None:
        if self._batches is not None:
            self._batches.close()
        if self._query is not None:
            self._query.stop()
        _release(self._claim)

    def describe(self) -> str:
        kind = "streaming" if self.streaming else "static"
        return f"{kind} Spark DataFrame {self.name!r}, through the store"

    def _names(self) -> list[str]:
        assert isinstance(self.type_info, RowTypeInfo)
        return self.type_info.get_field_names()

    def _start_query(self, store: Store) -> None:
        batches, names, unread_max = self._batches, self._names(), self.unread_batches_max
        assert batches is not None and self._df is not None

        def take(batch: DataFrame, number: int) -> None:
            if batches.has(number):
                return
            batches.wait_for_room(unread_max)
            _write(batch, names, spark_url(store, batches.folder(number)))
            batches.add(number)

        checkpoint = spark_url(store, f"{batches.scratch(CHECKPOINT)}/any").rpartition("/")[0]
        writer = self._df.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        if self.trigger:
            writer = writer.trigger(**self.trigger)
        self._query = writer.start()

    def _raise_failure(self) -> None:
        assert self._query is not None
        failure = self._query.exception()
        if failure is not None:
            raise JobFailedError(
                f"The Spark streaming query that feeds DataFrame {self.name!r} failed: {_first_line(str(failure))}. "
                f"Its stored batches are retained; correct the query and start the job again.",
                report=str(failure),
            )


def _checked_type(type_info: TypeInformation, df: DataFrame) -> TypeInformation:
    """The declared type; rejected if the DataFrame lacks its columns."""
    if not isinstance(type_info, RowTypeInfo):
        raise ProgramError(f"A DataFrame has rows, not {type_info}. Declare Types.ROW_NAMED([…], […]), or no type.")
    missing = [name for name in type_info.get_field_names() if name not in df.columns]
    if missing:
        raise ProgramError(f"The DataFrame has the columns {df.columns}, but not {missing}. Correct the declared type.")
    return type_info


def _write(df: DataFrame, names: list[str], url: str) -> None:
    """Write the rows as Parquet; replaces files of an earlier, unfinished attempt."""
    selection = df.select(*[f"`{name.replace('`', '``')}`" for name in names])
    with _micros(df.sparkSession):
        selection.write.mode("overwrite").parquet(url)


@contextmanager
def _micros(session: Any) -> Iterator[None]:
    """Writes timestamps as whole microseconds in UTC: few readers besides Spark support its default for Parquet."""
    previous = session.conf.get(_TIMESTAMPS, None)
    session.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        if previous is None:
            session.conf.unset(_TIMESTAMPS)
        else:
            session.conf.set(_TIMESTAMPS, previous)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), text).rstrip(".")


_CLAIMS: set[tuple[str, str]] = set()
_CLAIMS_LOCK = threading.Lock()


def _claim_name(store_url: str, name: str) -> tuple[str, str]:
    """Claim the name for this source: two DataFrames under one name would read each other's rows."""
    claim = (store_url, name)
    with _CLAIMS_LOCK:
        if claim in _CLAIMS:
            raise ProgramError(
                f"Two DataFrames of this job have the name {name!r}. Give each its own name: SparkFrameSource(df, "
                f"name=…)."
            )
        _CLAIMS.add(claim)
    return claim


def _release(claim: tuple[str, str] | None) -> None:
    if claim is not None:
        with _CLAIMS_LOCK:
            _CLAIMS.discard(claim)


CHECKPOINT = "checkpoint"
_LOGGED = re.compile(r"(?:offsets|commits)/(\d+)")


def inherit_checkpoint(name: str, past: InheritedBatches, store: Store, folder: str) -> None:
    """Copy the checkpoint of the query that stored the batches of `past`, as of the last, to `folder` of `store`."""
    if past.through < 0:
        return  # it has stored nothing: the new query has the default start
    base, past_folder = open_store(past.store), scratch_folder(name, past.series, CHECKPOINT)
    files = {file.removeprefix(f"{past_folder}/"): file for file in base.list(past_folder)}
    if f"offsets/{past.through}" not in files:
        raise StoreError(
            f"Store {past.store}: Spark's checkpoint of DataFrame {name!r} does not have the end of batch "
            f"{past.through} (offsets/{past.through} is missing), so no other job can continue after it. "
            f"Start the job there once, then fork it again."
        )
    for file, past_name in files.items():
        log_match = _LOGGED.fullmatch(file)
        is_hidden = file.rpartition("/")[2].startswith(".")
        if not (is_hidden or file == "metadata" or (log_match is not None and int(log_match.group(1)) > past.through)):
            store.put(f"{folder}/{file}", base.get(past_name))
    store.put(f"{folder}/metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
