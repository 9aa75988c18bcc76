"""A sink that adds the records of each epoch to a Delta table, in one transaction, exactly once.

Tasks write data files into the table's folder, where no reader of the table sees them (`data_files`). After the epoch's
manifest is written, the driver adds them to the table's log, with the epoch's name (`table`). No other record exists:
if the driver crashes between the two, publishing is repeated, and the table itself shows whether it was done.

The table may be in a local or mounted folder, or in an object store with conditional create.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.common.typeinfo import BasicType, BasicTypeInfo, RowTypeInfo, Types
from millstream.connectors.contracts import CommitId, CommitPlan, Json, RestorePoint, Sink, SinkWriter, WriterContext
from millstream.connectors.delta.data_files import DataFileWriter, TableShape
from millstream.connectors.delta.table import (
    COMMIT_KEY,
    add_columns,
    add_epoch,
    check_columns,
    check_names,
    delta_fields,
    needed_columns,
    opened_table,
)
from millstream.connectors.files.part_rules import STAGING
from millstream.connectors.files.places import refuse_credentials
from millstream.connectors.files.publishing import service_of
from millstream.connectors.foreign_columns import foreign_schema
from millstream.connectors.unavailable_targets import named_target
from millstream.errors import MillstreamError, ProgramError, StoreDamagedError, StoreError
from millstream.records.shapes import plain_type
from millstream.storage.local import LocalStore
from millstream.storage.patience import patiently, with_patience
from millstream.storage.store import Store, is_object_address, open_store, shown_address

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["DeltaTableSink"]

_FILE_BYTES_MAX = 128 * 1024 * 1024
_CONCURRENT_REQUESTS = 16
_DIVIDING = frozenset(
    {BasicType.STRING, BasicType.BOOLEAN, BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG}
)


class DeltaTableSink(Sink):
    """Adds rows of `row_type` to the Delta table at `url`, partitioned by `partition_columns`. `adds_columns`: add
    missing columns of the rows to the table.

    >>> sink = DeltaTableSink("s3://shop/sales", Types.ROW_NAMED(["shop", "cents"], [Types.STRING(), Types.LONG()]))
    >>> sink.describe()
    'Delta table s3://shop/sales'
    """

    def __init__(
        self,
        url: str,
        row_type: RowTypeInfo,
        partition_columns: Sequence[str] = (),
        file_bytes_max: int = _FILE_BYTES_MAX,
        *,
        adds_columns: bool = False,
    ) -> None:
        if isinstance(partition_columns, str):
            raise ProgramError(
                f"Delta sink: partition_columns is the text {partition_columns!r}. Pass a list of names."
            )
        if file_bytes_max < 1:
            raise ProgramError(f"Delta sink: file_bytes_max is {file_bytes_max}. Use at least 1.")
        self._shape = TableShape(_checked_url(url), row_type, tuple(partition_columns), file_bytes_max)
        names, types = row_type.get_field_names(), row_type.get_field_types()
        check_names(names)
        fields = dict(zip(names, types, strict=True))
        for name in self._shape.partition_columns:
            _check_partition_column(name, fields)
        if len(set(self._shape.partition_columns)) != len(self._shape.partition_columns):
            raise ProgramError(f"Delta sink: a partition column is named twice in {list(partition_columns)}")
        if len(names) == len(self._shape.partition_columns):
            raise ProgramError("Delta sink: all columns are partition columns, so its files would have none")
        self._schema = foreign_schema(row_type)
        self._table: DeltaTable | None = None
        self._needed_columns: list[str] = []
        self._adds_columns = adds_columns

    def __getstate__(self) -> dict[str, Any]:
        # Only the driver uses the table's log.
        return {**self.__dict__, "_table": None}

    def writer(self, context: WriterContext) -> SinkWriter:
        return DataFileWriter(self._shape, context)

    def opened(self, session: Any) -> Sink:
        url = self._shape.url
        delta_fields(url, self._schema)
        self._check_writable()
        sink = copy.copy(self)
        sink._table = self._loaded_table()
        if self._adds_columns:
            add_columns(sink._table, url, self._schema)
        check_columns(sink._table, url, self._schema, self._shape.partition_columns)
        sink._needed_columns = needed_columns(sink._table)
        return sink

    def _loaded_table(self) -> DeltaTable:
        address = _delta_address(self._shape.url)
        return patiently(partial(opened_table, address, self._schema, self._shape.partition_columns))

    def _check_writable(self) -> None:
        """Probe the tasks' target, in a hidden folder: also rejects a store without conditional create."""
        store = with_patience(open_store(f"{self._shape.url.rstrip('/')}/{STAGING}"))
        try:
            store.check_writable()
        except StoreError as error:
            reason = error.message.removeprefix(f"Store {store.url}").lstrip(": ")
            raise StoreError(f"Delta sink cannot write to {shown_address(self._shape.url)}: {reason}") from error
        place = store.local_path("any")
        if place is not None:
            with suppress(OSError):
                place.parent.rmdir()

    def plan_commit(self, staged: Sequence[Json], pending: Json, now_ms: int, final: bool) -> CommitPlan:
        for file in staged:
            nulls = {**file["stats"]["nullCount"], **{name: value is None for name, value in file["partition"].items()}}
            for name in self._needed_columns:
                if nulls.get(name, 0):
                    raise ProgramError(
                        f"{self.describe()}: column {name!r} is not nullable, but a file of this epoch has "
                        f"{int(nulls[name])} rows or more with None there. The epoch was not committed. Filter "
                        "or fill them before the sink"
                    )
        # The table's id distinguishes it from a table that replaces it.
        table = {} if self._table is None else {"table": self._table.metadata().id}
        return CommitPlan(tuple({**file, "target": self._shape.url, **table} for file in staged))

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        if publish:
            with named_target(self._shape.url, store):
                self._add_epoch(commit, publish)

    def _add_epoch(self, commit: CommitId, publish: Sequence[Json]) -> None:
        table = self._table or self._loaded_table()
        address = _delta_address(self._shape.url)
        self._check_same_table(table, publish)
        if not _holds(table, commit):
            self._check_files(publish)
        try:
            # Idempotent: the table shows whether an attempt without a response has added the epoch.
            columns = self._shape.partition_columns
            patiently(partial(add_epoch, table, address, commit, publish, self._schema, columns))
        except MillstreamError:
            # This object's view of the table may be outdated after an error: the next attempt reads it again.
            self._table = None
            raise
        self._table = table

    def _check_same_table(self, table: DeltaTable, publish: Sequence[Json]) -> None:
        """Reject adding files of one table to another: its earlier epochs would be missing silently."""
        table_id, ids = table.metadata().id, {file.get("table") for file in publish} - {None}
        if ids - {table_id}:
            raise StoreDamagedError(
                f"{self.describe()} is not the table that this job wrote to: its id is {table_id}, expected "
                f"{', '.join(sorted(ids))}. Was it deleted and created again? Nothing was added. Put the table back, "
                f"or start the job from the beginning, with a new store"
            )

    def _check_files(self, files: Sequence[Json]) -> None:
        """Check that every file exists: a table whose log lists a missing file is unreadable."""
        target = with_patience(open_store(self._shape.url))
        with ThreadPoolExecutor(min(len(files), _CONCURRENT_REQUESTS)) as threads:
            sizes = list(threads.map(lambda file: _size_of(target, file["path"]), files))
        for file, size in zip(files, sizes, strict=True):
            if size != file["bytes"]:
                state = "is missing" if size is None else f"has {size} bytes, expected {file['bytes']}"
                raise StoreDamagedError(
                    f"{self.describe()}: data file {file['path']!r} {state}, and it is not part of the table yet. "
                    "The epoch was not added. Did a vacuum without retention remove it? Put the file back, or "
                    "start from an earlier savepoint"
                )

    def published_files(self) -> set[str]:
        """The names of the files that are part of the table, without their folders."""
        return {place.rpartition("/")[2] for place in patiently(self._loaded_table().file_uris)}

    def after_restore(self, pending: Json, point: RestorePoint) -> tuple[Json, str]:
        try:
            table = self._loaded_table()
            history = table.history()
        except MillstreamError:
            return pending, ""  # opening the sink will report the error
        committer = CommitId(point.past_job, point.uid, 0).committer
        later_versions = []
        for entry in history:
            commit_text = str(entry.get(COMMIT_KEY, ""))
            if commit_text.rpartition(".")[0] == committer and int(commit_text.rpartition(".")[2]) > point.epoch:
                later_versions.append(int(entry["version"]))
        if not later_versions:
            return pending, ""
        first = min(later_versions)
        versions = f"version {first}" if len(later_versions) == 1 else f"versions {first} to {max(later_versions)}"
        advice = (
            "let this job write to another table"
            if point.forked
            else f"restore the table (DeltaTable(…).restore({first - 1})) if no one else writes to it, or let the job "
            "write to another one"
        )
        return pending, f"{versions} of the table hold records of later epochs, which will be repeated: {advice}"

    def close(self) -> None:
        self._table = None

    def describe(self) -> str:
        return f"Delta table {shown_address(self._shape.url)}"


def _holds(table: DeltaTable, commit: CommitId) -> bool:
    """Whether the table, as last read, contains this epoch."""
    newest_epoch = table.transaction_version(commit.committer)
    return newest_epoch is not None and newest_epoch >= commit.epoch


def _size_of(target: Store, name: str) -> int | None:
    service = service_of(target)
    if service is not None:
        facts = patiently(partial(service.size_and_mark, name))
        return None if facts is None else facts[0]
    path = target.local_path(name)
    return path.stat().st_size if path is not None and path.is_file() else None


def _checked_url(url: str) -> str:
    refuse_credentials(url, "Delta sink")
    address = open_store(url).url
    if not is_object_address(address) and not isinstance(open_store(url), LocalStore):
        raise ProgramError(
            f"Delta sink: {url} is neither a folder nor an object store. Use a path, or s3://bucket/table"
        )
    if "%" in shown_address(address):
        # The package unescapes '%41' in a path when it reads, but not when it writes.
        raise ProgramError(
            f"Delta sink: {shown_address(address)} contains '%', which deltalake does not support. Rename it"
        )
    return address


def _delta_address(url: str) -> str:
    """The address in the format of the deltalake package: one scheme for S3, and a plain path for a folder."""
    return url.replace("s3a://", "s3://", 1) if is_object_address(url) else shown_address(url)


def _check_partition_column(name: str, fields: dict[str, Any]) -> None:
    if name not in fields:
        raise ProgramError(f"Delta sink: the partition column {name!r} is not among the fields {list(fields)}")
    plain = plain_type(fields[name])
    if plain == Types.SQL_DATE() or (isinstance(plain, BasicTypeInfo) and plain.basic_type in _DIVIDING):
        return
    raise ProgramError(
        f"Delta sink: the partition column {name!r} is {fields[name]}, expected text, a whole number, a boolean or a "
        "date"
    )
