"""The driver's view of a Delta table: creates it if absent, checks it against the stream's type, and adds epochs.

One transaction per epoch adds the epoch's files and, in the same step, records the epoch with its job and sink
(an application transaction: `CommitId.committer` and the epoch). So only the table itself shows whether it has an
epoch: a repeat after a crash, or by a second driver, detects it and adds nothing. If two drivers add the same epoch
concurrently, Delta accepts one of them: the other receives a conflict with a transaction of the same application, reads
the table again, and finishes.

The sink rejects tables that it would silently corrupt: tables with columns of another type, tables with writer features
that are not supported here (checks, generated columns, renamed columns, row ids), and tables that expire application
transactions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.connectors.contracts import CommitId, Json
from millstream.errors import MillstreamError, PlatformError, ProgramError, StoreAwayError, StoreError
from millstream.storage.store import is_object_address

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = [
    "COMMIT_KEY",
    "add_columns",
    "add_epoch",
    "check_columns",
    "check_names",
    "delta_fields",
    "needed_columns",
    "opened_table",
    "text_of",
]

COMMIT_KEY = "millstream.commit"
"""The operation name of a commit in the table's history."""

_ATTEMPTS = 10
_REASON_CHARS_MAX = 600
_SERVICE_OPTIONS = {"max_retries": "8", "retry_timeout": "10s", "connect_timeout": "5s", "timeout": "30s"}
_UNKEPT = {
    "delta.columnMapping.mode": ("none", "its columns have other names in its files"),
    "delta.enableRowTracking": ("false", "every row needs an id"),
    "delta.setTransactionRetentionDuration": (None, "it expires the epochs it holds, and could add one twice"),
    "delta.enableIcebergCompatV1": ("false", "its files must be compatible with Iceberg"),
    "delta.enableIcebergCompatV2": ("false", "its files must be compatible with Iceberg"),
}
_UNKEPT_OF_COLUMNS = ("delta.generationExpression", "delta.identity", "delta.invariants")


def check_names(names: Sequence[str]) -> None:
    """Checks Delta's rules for column names; raises ProgramError naming the invalid one."""
    lowered = [name.lower() for name in names]
    duplicates = sorted({name for name in names if lowered.count(name.lower()) > 1})
    if duplicates:
        raise ProgramError(f"Delta sink: the columns {duplicates} differ only in case, expected other names")
    invalid = [name for name in names if not name or any(letter in " ,;{}()\n\t=" for letter in name)]
    if invalid:
        raise ProgramError(
            f"Delta sink: a column is named {invalid[0]!r}. Delta allows no empty name, and no ' ,;{{}}()=', tab or "
            "line end in one. Rename it"
        )


def opened_table(url: str, schema: pa.Schema, partition_columns: Sequence[str]) -> DeltaTable:
    """The table at `url`, created if it does not exist."""
    deltalake = _package()
    with _explained(url):
        # `is_deltatable` is not used: it blocks every thread of this process while it waits for the service.
        try:
            return _loaded(url)
        except deltalake.exceptions.TableNotFoundError:
            pass
        try:
            return _created(url, schema, partition_columns)
        except deltalake.exceptions.DeltaError:
            # Another driver has just created it; otherwise the next line raises the reason.
            return _loaded(url)


def _loaded(url: str) -> DeltaTable:
    table: DeltaTable = _package().DeltaTable(url, storage_options=_options(url))
    return table


def _created(url: str, schema: pa.Schema, partition_columns: Sequence[str]) -> DeltaTable:
    table: DeltaTable = _package().DeltaTable.create(
        url, schema, mode="error", partition_by=list(partition_columns), storage_options=_options(url)
    )
    return table


def delta_fields(url: str, schema: pa.Schema) -> list[dict[str, Json]]:
    """The columns of a stream as a Delta schema; ProgramError for a type that Delta lacks."""
    fields: list[dict[str, Json]] = []
    for field in schema:
        try:
            document = json.loads(_package().Schema.from_arrow(pa.schema([field])).to_json())
        except MillstreamError:
            raise
        except Exception as error:
            raise ProgramError(
                f"Delta sink {url}: column {field.name!r} is {field.type}, which a Delta table cannot hold. Map it to "
                "text or a number before the sink"
            ) from error
        fields.extend(document["fields"])
    return fields


def check_columns(table: DeltaTable, url: str, schema: pa.Schema, partition_columns: Sequence[str]) -> None:
    """Checks that rows of `schema` can be added to the table with the same meaning; raises ProgramError otherwise."""
    configuration = table.metadata().configuration
    for key, (harmless, reason) in _UNKEPT.items():
        if key in configuration and configuration[key] != harmless:
            raise ProgramError(
                f"Delta table {url} has {key}={configuration[key]!r}: {reason}, which this sink does not support. "
                f"Unset the property, or write to another table"
            )
    constraints = sorted(key for key in configuration if key.startswith("delta.constraints."))
    if constraints:
        raise ProgramError(
            f"Delta table {url} has the constraint {constraints[0]}={configuration[constraints[0]]!r}, which this sink "
            "does not check. Drop the constraint and filter the stream, or write to another table"
        )
    _check_partitions(table, url, partition_columns)
    columns = {field["name"]: field for field in json.loads(table.schema().to_json())["fields"]}
    for name, field in columns.items():
        unsupported_keys = [key for key in field["metadata"] if key.startswith(_UNKEPT_OF_COLUMNS)]
        if unsupported_keys:
            raise ProgramError(
                f"Delta table {url}: column {name!r} has {unsupported_keys[0]}, which this sink does not support"
            )
    stream_fields = delta_fields(url, schema)
    for field in stream_fields:
        name = field["name"]
        if name not in columns:
            raise ProgramError(
                f"Delta table {url} has the columns {list(columns)}, and {name!r} of the stream is missing. Add "
                "it to the table (DeltaTable(…).alter.add_columns(…)), or remove it from the rows"
            )
        if text_of(columns[name]["type"]) != text_of(field["type"]):
            raise ProgramError(
                f"Delta table {url}: column {name!r} is {text_of(columns[name]['type'])}, but the stream has "
                f"{text_of(field['type'])}. Change the type of the rows, or write to another table"
            )
    names = {field["name"] for field in stream_fields}
    missing = [name for name, field in columns.items() if name not in names and not field["nullable"]]
    if missing:
        raise ProgramError(
            f"Delta table {url}: column {missing[0]!r} must not be null, but the stream has no such field"
        )


def add_columns(table: DeltaTable, url: str, schema: pa.Schema) -> None:
    """Add the missing columns of `schema` to the table; they are null in existing rows."""
    deltalake = _package()
    names = {field["name"] for field in json.loads(table.schema().to_json())["fields"]}
    fields = deltalake.Schema.from_arrow(pa.schema([field for field in schema if field.name not in names])).fields
    if fields:
        with _explained(url):
            table.alter.add_columns(list(fields))
            table.update_incremental()


def _check_partitions(table: DeltaTable, url: str, partition_columns: Sequence[str]) -> None:
    columns = list(table.metadata().partition_columns)
    if columns != list(partition_columns):
        raise ProgramError(
            f"Delta table {url} is partitioned by {columns}, but the sink by {list(partition_columns)}. Use the "
            "table's partition columns, in order, or write to another table"
        )


def text_of(delta_type: Json) -> str:
    """A Delta type without its nullability.

    >>> text_of({"type": "array", "elementType": "long", "containsNull": False})
    'array<long>'
    """
    if isinstance(delta_type, str):
        return delta_type
    kind = delta_type["type"]
    if kind == "array":
        return f"array<{text_of(delta_type['elementType'])}>"
    if kind == "map":
        return f"map<{text_of(delta_type['keyType'])}, {text_of(delta_type['valueType'])}>"
    fields = [f"{field['name']}: {text_of(field['type'])}" for field in delta_type["fields"]]
    return f"struct<{', '.join(fields)}>"


def needed_columns(table: DeltaTable) -> list[str]:
    """The non-nullable columns of the table."""
    return [field["name"] for field in json.loads(table.schema().to_json())["fields"] if not field["nullable"]]


def add_epoch(
    table: DeltaTable,
    url: str,
    commit: CommitId,
    files: Sequence[Mapping[str, Json]],
    schema: pa.Schema,
    partition_columns: Sequence[str],
) -> bool:
    """Add the files of one epoch to the table, once; False if it already contains them."""
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import CommitFailedError

    with _explained(url):
        for attempt in range(_ATTEMPTS):
            table.update_incremental()
            newest_epoch = table.transaction_version(commit.committer)
            if newest_epoch is not None and newest_epoch >= commit.epoch:
                return False
            check_columns(table, url, schema, partition_columns)
            properties = CommitProperties(
                custom_metadata={COMMIT_KEY: str(commit)},
                app_transactions=[Transaction(commit.committer, commit.epoch)],
            )
            try:
                table.create_write_transaction(
                    [_action(file) for file in files],
                    "append",
                    table.schema(),
                    list(partition_columns),
                    commit_properties=properties,
                )
                return True
            except CommitFailedError:
                # The table was changed concurrently, perhaps by a driver of this job with this epoch. Check again.
                if attempt == _ATTEMPTS - 1:
                    raise
    raise AssertionError("every attempt returns or raises")


def _action(file: Mapping[str, Json]) -> Any:
    from deltalake.transaction import AddAction

    return AddAction(
        path=file["path"],
        size=file["bytes"],
        partition_values=file["partition"],
        modification_time=file["written_ms"],
        data_change=True,
        stats=json.dumps(file["stats"]),
    )


def _package() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError as error:
        raise PlatformError(
            "A Delta sink needs the package deltalake. Install it: pip install 'millstream[delta]'"
        ) from error
    return deltalake


def _options(url: str) -> dict[str, str] | None:
    # Credentials, region and endpoint are read from the environment, as for the job's store.
    return dict(_SERVICE_OPTIONS) if is_object_address(url) else None


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """Converts errors of the package to ours, with the table's address."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except MillstreamError:
        raise
    except (DeltaError, OSError, ValueError) as error:
        reason = _plain_reason(error)
        kind = StoreAwayError if isinstance(error, OSError) and not isinstance(error, PermissionError) else StoreError
        raise kind(
            f"Delta table {url}: {reason}. Check the address, the credentials in the environment and the network"
        ) from error


def _plain_reason(error: BaseException) -> str:
    """The package's message on one line, instead of its coloured tree of causes."""
    lines = [re.sub(r"\x1b\[[0-9;]*m|↳", "", line).strip() for line in str(error).split("\n\n", 1)[0].splitlines()]
    return ": ".join(line for line in lines if line).rstrip(".")[:_REASON_CHARS_MAX]
