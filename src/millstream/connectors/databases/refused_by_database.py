"""Determines which rows a database refuses by trial, so that the other rows of the epoch can be published.

After a transaction failed because of a value, the same rows are written once more in parts, each after a savepoint. A
failing part is rolled back and halved, until single refused rows remain; an accepted part stays, so that a
row is also refused because of rows written before it. At the end everything is rolled back: this is only a test. An
error that concerns the whole statement instead of a row (a missing table, a permission) starts no search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.connectors.databases.accepted_values import AcceptedValues
from millstream.connectors.databases.dialect import RowBatch
from millstream.connectors.refused_rows import RefusedRow, shown_row
from millstream.errors import ProgramError

__all__ = ["NumberedRows", "is_about_rows", "refused_rows"]

_ROWS_MAX = 500
"""Maximum number of refused rows per search: each costs some round trips. A repeat reports the next ones."""

_POSTGRES_CLASSES = ("22", "23", "44")  # data exceptions, integrity constraints, WITH CHECK OPTION
_POSTGRES_CODES = ("54000", "P0001")  # a row too large for its index, RAISE in a trigger
_POSTGRES_INSUFFICIENT_PRIVILEGE = "42501"
# Data too long, out of range, incorrect, null, duplicate, foreign key, CHECK, SIGNAL.
_MYSQL_CODES = frozenset(
    {1048, 1062, 1216, 1217, 1263, 1264, 1265, 1292, 1364, 1366, 1367, 1406, 1411, 1441, 1451, 1452, 1557, 1644}
    | {1690, 3140, 3819, 4025}
)


@dataclass(frozen=True)
class NumberedRows:
    """Rows of one staged item, with their numbers in it."""

    item: int
    numbers: npt.NDArray[np.int64]
    rows: RowBatch


def is_about_rows(kind: str, error: BaseException) -> bool:
    """Whether a row is refused because of its content: by the database, or by the conversion to text (a NaN in
    JSON, a year that Python's datetime does not have)."""
    if isinstance(error, ProgramError):  # also a ValueError, but about the whole table
        return False
    if isinstance(error, (ValueError, OverflowError)):
        return True
    if kind == "postgresql":
        from millstream.connectors.databases.postgres_session import psycopg

        library = psycopg()
        code = getattr(error, "sqlstate", None) or ""
        is_data = isinstance(error, (library.DataError, library.IntegrityError))
        if (
            code == _POSTGRES_INSUFFICIENT_PRIVILEGE
        ):  # also raised for a row that a policy refuses; only this field distinguishes the two
            return bool(error.diag.source_function == "ExecWithCheckOptions")  # type: ignore[attr-defined]
        return is_data or code.startswith(_POSTGRES_CLASSES) or code in _POSTGRES_CODES
    from millstream.connectors.databases.mysql_dialect import pymysql

    if not isinstance(error, pymysql().err.Error):
        return False
    number = error.args[0] if error.args else None
    return number in _MYSQL_CODES or "can not be used with MySQL" in str(number)


def refused_rows(
    kind: str,
    connection: Any,
    accepted: AcceptedValues,
    write: Callable[[Iterator[RowBatch]], None],
    batches: Iterable[NumberedRows],
    reason_of: Callable[[BaseException], str],
    is_time_up: Callable[[], bool],
) -> list[RefusedRow]:
    """The refused rows: at most the first `_ROWS_MAX`, or as many as are found in time, but at least one. The
    caller must then roll back the transaction."""
    refused: list[RefusedRow] = []
    if kind == "postgresql":
        _execute(connection, "SET CONSTRAINTS ALL IMMEDIATE")
    for batch in batches:
        reasons: dict[int, str] = {}
        for value in accepted.refused(batch.rows.columns, batch.rows.deletes):
            reasons.setdefault(value.row, f"{value.column!r} is {value.reason}")
        good = np.setdiff1d(np.arange(batch.rows.columns.num_rows), list(reasons))
        parts = [good] if len(good) else []
        while parts and len(reasons) + len(refused) < _ROWS_MAX and not ((reasons or refused) and is_time_up()):
            part = parts.pop()
            error = _try_write(kind, connection, write, _part(batch.rows, part))
            if error is None:
                continue
            if len(part) == 1:
                reasons[int(part[0])] = reason_of(error)
            else:  # the first half is tried first
                parts += [part[len(part) // 2 :], part[: len(part) // 2]]
        for row in sorted(reasons):
            shown = shown_row(batch.rows.columns, row)
            refused.append(RefusedRow(batch.item, int(batch.numbers[row]), reasons[row], shown))
        if len(refused) >= _ROWS_MAX or (refused and is_time_up()):
            break
    return refused


def _part(rows: RowBatch, at: npt.NDArray[np.int64]) -> RowBatch:
    places = pa.array(at)
    deletes = None if rows.deletes is None else rows.deletes.take(places)
    return replace(rows, columns=rows.columns.take(places), first=rows.first + int(at[0]), deletes=deletes)


def _try_write(
    kind: str, connection: Any, write: Callable[[Iterator[RowBatch]], None], rows: RowBatch
) -> BaseException | None:
    """Try to write rows; returns the error if they are refused. Accepted rows stay written."""
    _execute(connection, "SAVEPOINT millstream")
    try:
        write(iter([rows]))
    except Exception as error:
        if not is_about_rows(kind, error):
            raise
        _execute(connection, "ROLLBACK TO SAVEPOINT millstream")
        return error
    _execute(connection, "RELEASE SAVEPOINT millstream")
    return None


def _execute(connection: Any, statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
