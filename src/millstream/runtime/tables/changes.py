"""Changelogs: signs of row kinds, and net changes between two states.

Rows of kind +I and +U are inserts, -U and -D are deletes. An operator emits the net change of an epoch: for each group,
key or rank the previous row as a delete and the current one as an insert, and nothing if they are equal. So the output
of every committed epoch is the answer over all input read up to it.

A retraction equals the emitted row including the signs of zeros: 0.0 and -0.0 are equal as keys but differ in a row,
since a cast to a string or a division exposes the sign. All NaNs are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.aggregation.groups import Groups, groups_of, pair_groups
from millstream.common.typeinfo import TypeInformation
from millstream.common.types import RowKind
from millstream.errors import ProgramError
from millstream.records.batch import Batch
from millstream.records.columns import KIND_COLUMN
from millstream.runtime.joins.matching import key_numbers
from millstream.runtime.operators.user_code import UserCall
from millstream.state.keys.hashing import Int64s
from millstream.state.keys.key_columns import Bools, holds_floats

__all__ = [
    "attach_row_kinds",
    "change_batches",
    "change_signs",
    "changed_mask",
    "changed_rows",
    "consolidated_rows",
    "difference",
    "equal_rows",
    "reject_retractions",
    "row_numbers",
]

_INSERT, _BEFORE, _AFTER, _DELETE = (
    kind.value for kind in (RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE)
)
_BATCH_ROWS_MAX = 65_536
_KIND_FIELD = pa.field(KIND_COLUMN, pa.int8())
_BITS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def change_signs(columns: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s | None]:
    """The rows without their kinds, and 1 for each insert, -1 for each delete; None: all are inserts."""
    at = columns.schema.get_field_index(KIND_COLUMN)
    if at < 0:
        return columns, None
    kinds = columns.column(at).to_numpy(zero_copy_only=False)
    signs = np.where((kinds == _INSERT) | (kinds == _AFTER), 1, -1).astype(np.int64)
    return columns.remove_column(at), None if (signs > 0).all() else signs


def reject_retractions(call: UserCall, batch: Batch, signs: Int64s | None, role: str) -> None:
    """Reject deletes from a table that is declared append-only; the error shows the first one."""
    if signs is None:
        return
    error = ProgramError(
        "the row is deleted from a table that is declared append-only. Declare the source's changelog mode"
    )
    raise call.failed(error, role, tuple(batch.slice(int(np.flatnonzero(signs < 0)[0]), 1).values()))


def attach_row_kinds(columns: pa.RecordBatch, kinds: Int64s) -> pa.RecordBatch:
    """Rows with a kind column; without one if all are +I."""
    if not kinds.any():
        return columns
    return columns.append_column(_KIND_FIELD, pa.array(kinds.astype(np.int8)))


def change_batches(
    columns: pa.RecordBatch, kinds: Int64s | None, type_: TypeInformation, stamps: Int64s | None = None
) -> Iterator[Batch]:
    """Changes as batches of bounded size. Without kinds all rows are inserts."""
    for start in range(0, columns.num_rows, _BATCH_ROWS_MAX):
        some = slice(start, start + _BATCH_ROWS_MAX)
        piece = columns.slice(start, _BATCH_ROWS_MAX)
        rows = piece if kinds is None else attach_row_kinds(piece, kinds[some])
        yield Batch.of_coded_columns(rows, type_, None if stamps is None else stamps[some])


def changed_rows(existed: Bools, exists: Bools, differ: Bools) -> tuple[Int64s, Int64s]:
    """The changes of groups: the index of each change's row in [before, after], concatenated, and its kind. `existed`
    and `exists` mask the groups that had a row and that have one, `differ` the rows that changed.

    >>> rows, kinds = changed_rows(np.array([True, False]), np.array([True, True]), np.array([True, False]))
    >>> rows.tolist(), kinds.tolist()
    ([0, 2, 3], [1, 2, 0])
    """
    count = len(existed)
    updated = existed & exists & differ
    before = np.where(updated, _BEFORE, np.where(existed & ~exists, _DELETE, -1))
    after = np.where(updated, _AFTER, np.where(exists & ~existed, _INSERT, -1))
    # A group's previous row directly precedes its current row.
    kinds = np.stack([before, after], axis=1).reshape(-1)
    rows = np.stack([np.arange(count), np.arange(count) + count], axis=1).reshape(-1)
    emitted = np.flatnonzero(kinds >= 0)
    return rows[emitted], kinds[emitted].astype(np.int64)


def row_numbers(rows: Sequence[pa.Array]) -> list[Int64s]:
    """Numbers for the rows of several columns of one type; identical rows have the same number across columns.

    >>> [codes.tolist() for codes in row_numbers([pa.array([0.0, -0.0, float("nan")]), pa.array([float("nan"), 0.0])])]
    [[0, 1, 2], [2, 0]]
    """
    return key_numbers([_comparable(column) for column in rows])


def _comparable(column: pa.Array) -> pa.Array:
    """A column whose values are equal exactly where this column's are identical."""
    kind = column.type
    if not holds_floats(kind):
        return column
    if pa.types.is_floating(kind):
        is_nan = pc.is_nan(column)
        if pc.any(is_nan).as_py():
            column = pc.if_else(is_nan, pa.scalar(float("nan"), kind), column)
        return column.view(_BITS[kind.bit_width])
    if pa.types.is_struct(kind):
        fields = [_comparable(column.field(at)) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, names=[field.name for field in kind], mask=column.is_null())
    # Lists are compared by their repr.
    return pa.array(map(repr, column.to_pylist()), pa.string(), size=len(column))


def consolidated_rows(rows: pa.RecordBatch, signs: Int64s) -> tuple[pa.RecordBatch, Int64s]:
    """Rows without pairs of insert and delete that cancel out."""
    if (signs > 0).all() or (signs < 0).all():
        return rows, signs
    codes = row_numbers([pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema))])[0]
    count = int(codes.max()) + 1
    left = np.zeros(count, dtype=np.int64)
    np.add.at(left, codes, signs)
    first = np.empty(count, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    at = np.repeat(first, np.abs(left))
    return rows.take(pa.array(at)), np.repeat(np.sign(left), np.abs(left))


def difference(before: pa.RecordBatch, after: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s]:
    """The net change from one set of rows to another, with kinds: -D before +I."""
    if not before.num_rows + after.num_rows:
        return before, np.empty(0, dtype=np.int64)
    both, split = pa.concat_batches([before, after]), before.num_rows
    equal = equal_rows(both.num_rows, split, (partial(_rows_of_column, column) for column in both.columns))
    kinds = np.repeat(np.array([_DELETE, _INSERT]), [split, after.num_rows])
    if not len(equal):
        return both, kinds
    left = np.setdiff1d(np.arange(both.num_rows), equal, assume_unique=True)
    return both.take(pa.array(left)), kinds[left]


def _rows_of_column(column: pa.Array, rows: Int64s) -> pa.Array:
    return column if len(rows) == len(column) else column.take(pa.array(rows))


def equal_rows(count: int, split: int, columns: Iterable[Callable[[Int64s], pa.Array]]) -> Int64s:
    """Matches rows of two sides that are identical, one to one; the first `split` rows are one side. A column is a
    function that reads the values of some rows. It is called only for rows that matched in all previous columns, so
    most columns are hardly read.

    >>> names, towns = pa.array(["a", "b", "b", "c", "b"]), pa.array(["x", "x", "x", "y", "y"])
    >>> equal_rows(5, 2, [lambda rows: names.take(pa.array(rows)), lambda rows: towns.take(pa.array(rows))]).tolist()
    [1, 2]
    """
    rows, groups = np.arange(count), Groups(np.zeros(count, dtype=np.int64), 1)
    for values_of in columns:
        codes = row_numbers([values_of(rows)])[0]
        groups = pair_groups(groups, Groups(codes, int(codes.max(initial=0)) + 1))
        first, second = _side_counts(rows, split, groups)
        is_left = ((first > 0) & (second > 0))[groups.codes]
        rows = rows[is_left]
        if not len(rows):
            return rows
        groups = groups_of(pa.array(groups.codes[is_left]))
    # Match min(left, right) identical rows.
    wanted = np.minimum(*_side_counts(rows, split, groups))
    equal = []
    for side in (rows < split, rows >= split):
        at = np.flatnonzero(side)
        order = at[np.argsort(groups.codes[at], kind="stable")]
        codes = groups.codes[order]
        sizes = np.bincount(codes, minlength=groups.count)
        place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        equal.append(rows[order[place < wanted[codes]]])
    return np.sort(np.concatenate(equal))


def _side_counts(rows: Int64s, split: int, groups: Groups) -> tuple[Int64s, Int64s]:
    """The number of rows per group on the first and on the second side."""
    is_first = rows < split
    first, second = groups.codes[is_first], groups.codes[~is_first]
    return np.bincount(first, minlength=groups.count), np.bincount(second, minlength=groups.count)


def changed_mask(before: Sequence[pa.Array], after: Sequence[pa.Array], rows: int) -> Bools:
    """Mask of the rows that differ in a column; NULL equals NULL, NaN equals NaN, 0.0 differs from -0.0.

    >>> old, new = [[float("nan")], [1.0], [0.0], None], [[float("nan")], [2.0], [-0.0], None]
    >>> changed_mask([pa.array(old)], [pa.array(new)], 4).tolist()
    [False, True, True, False]
    """
    differ = np.zeros(rows, dtype=np.bool_)
    for old, new in zip(before, after, strict=True):
        differ |= ~_same(old, new)
    return differ


def _same(old: pa.Array, new: pa.Array) -> Bools:
    if pa.types.is_nested(old.type):  # repr distinguishes zeros, but not NaNs
        pairs = zip(old.to_pylist(), new.to_pylist(), strict=True)
        return np.fromiter((repr(a) == repr(b) for a, b in pairs), dtype=np.bool_, count=len(old))
    old, new = _comparable(old), _comparable(new)
    same = np.asarray(pc.equal(old, new).fill_null(False))
    if old.null_count or new.null_count:
        same = same | (np.asarray(old.is_null()) & np.asarray(new.is_null()))
    return same
