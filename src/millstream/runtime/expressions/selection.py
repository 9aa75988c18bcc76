"""Functions with lazily evaluated arguments: AND, OR, CASE, COALESCE.

An argument that may fail, is expensive, or calls a user-defined function is a block with steps, which run only on the
rows that reach it: `CASE WHEN x <> 0 THEN 1 / x END` never divides by zero. Cheap and safe arguments are computed for
all rows beforehand; the function only selects from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from millstream.runtime.expressions.frames import Frame, Int64s
from millstream.runtime.expressions.kernel import Value
from millstream.runtime.expressions.numbers import booleans
from millstream.runtime.expressions.steps import Block, CaseStep, CoalesceStep, LogicStep

__all__ = ["run_case", "run_coalesce", "run_logic", "true_rows"]

RunBlock = Callable[[Frame, Block], Value]
"""Runs a block in a frame and returns its result, with dictionaries decoded."""
Bools = npt.NDArray[np.bool_]
Piece = tuple[Int64s, Value, bool]
"""Row positions, their value, and whether the value covers all rows of the frame (else only these)."""


def true_rows(condition: Value, rows: int) -> Int64s | None:
    """The rows where a condition is TRUE; None: all."""
    holds = is_true(condition, rows)
    return None if holds.all() else np.flatnonzero(holds)


def is_true(condition: Value, rows: int) -> Bools:
    """Where a condition is TRUE: neither FALSE nor unknown."""
    if isinstance(condition, pa.Scalar):
        return np.full(rows, condition.as_py() is True)
    return booleans(condition.fill_null(False) if condition.null_count else condition)


def run_logic(step: LogicStep, frame: Frame, run: RunBlock) -> Value:
    """AND and OR in SQL's three-valued logic."""
    combine = pc.and_kleene if step.is_and else pc.or_kleene
    result = run(frame, step.blocks[0])
    for block in step.blocks[1:]:
        if not block.steps:
            result = combine(result, run(frame, block))
            continue
        open_rows = np.flatnonzero(~_is_decided(result, frame.rows, step.is_and))
        if len(open_rows) == 0:
            continue
        if len(open_rows) == frame.rows:
            result = combine(result, run(frame, block))
            continue
        value = run(frame.selected(open_rows), block)
        # Decided rows get NULL, which does not change the result: FALSE AND NULL is FALSE.
        result = combine(result, assemble(frame.rows, [(open_rows, value, False)], pa.bool_()))
    return result


def _is_decided(result: Value, rows: int, is_and: bool) -> Bools:
    """Where AND is already FALSE, or OR already TRUE."""
    return is_true(pc.invert(result) if is_and else result, rows)


def run_case(step: CaseStep, frame: Frame, run: RunBlock, run_coded: RunBlock) -> Value:
    """The value of the first branch with a TRUE condition. Strings may be dictionary-encoded (by `run_coded`)."""
    if len(step.branches) == 1 and step.otherwise is not None:
        simple = _choose_of_two(step, frame, run)
        if simple is not None:
            return simple
    pending = np.ones(frame.rows, np.bool_)
    pieces: list[Piece] = []
    for condition, value in step.branches:
        hits = _hits(condition, frame, pending, run)
        pending &= ~hits
        pieces.append(_piece(value, frame, np.flatnonzero(hits), run_coded))
        if not pending.any():
            break
    if step.otherwise is not None:
        pieces.append(_piece(step.otherwise, frame, np.flatnonzero(pending), run_coded))
    return assemble(frame.rows, pieces, step.type.arrow)


def _choose_of_two(step: CaseStep, frame: Frame, run: RunBlock) -> Value | None:
    """Chooses between two computed fixed-width values with Arrow's if_else, which is faster."""
    (condition, value), otherwise = step.branches[0], step.otherwise
    assert otherwise is not None
    if condition.steps or value.steps or otherwise.steps or not _is_fixed_width(step.type.arrow):
        return None
    mask = run(frame, condition)
    if isinstance(mask, pa.Scalar):
        return run(frame, value if mask.as_py() is True else otherwise)
    return pc.if_else(mask.fill_null(False), run(frame, value), run(frame, otherwise))


def _is_fixed_width(type_: pa.DataType) -> bool:
    return bool(kinds.is_primitive(type_) or kinds.is_decimal(type_)) and not kinds.is_null(type_)


def _hits(condition: Block, frame: Frame, pending: Bools, run: RunBlock) -> Bools:
    """The rows with a TRUE condition that no earlier branch matched."""
    if not condition.steps or pending.all():
        return is_true(run(frame, condition), frame.rows) & pending
    rows = np.flatnonzero(pending)
    hits = np.zeros(frame.rows, np.bool_)
    hits[rows] = is_true(run(frame.selected(rows), condition), len(rows))
    return hits


def _piece(block: Block, frame: Frame, rows: Int64s, run: RunBlock) -> Piece:
    """A block's value for some rows."""
    if not block.steps or len(rows) == frame.rows:
        return rows, run(frame, block), True
    if len(rows) == 0:
        return rows, pa.scalar(None), False
    return rows, run(frame.selected(rows), block), False


def run_coalesce(step: CoalesceStep, frame: Frame, run: RunBlock) -> Value:
    """The first value that is not NULL."""
    open_rows: Int64s = np.arange(frame.rows)
    pieces: list[Piece] = []
    for block in step.blocks:
        rows, value, is_whole = _piece(block, frame, open_rows, run)
        if isinstance(value, pa.Scalar):
            if not value.is_valid:
                continue
            pieces.append((rows, value, is_whole))
            break
        is_set = value.is_valid().to_numpy(zero_copy_only=False)
        if is_whole:
            is_set = is_set[rows]
            pieces.append((rows[is_set], value, True))
        else:
            pieces.append((rows[is_set], value.filter(pa.array(is_set)), False))
        open_rows = rows[~is_set]
        if len(open_rows) == 0:
            break
    return assemble(frame.rows, pieces, step.type.arrow)


def assemble(rows: int, pieces: list[Piece], type_: pa.DataType) -> pa.Array:
    """Assembles a column from pieces; uncovered rows are NULL. Strings of dictionaries and constants stay encoded."""
    pieces = [piece for piece in pieces if len(piece[0])]
    if kinds.is_string(type_) and all(isinstance(value, pa.Scalar | pa.DictionaryArray) for _, value, _ in pieces):
        return _assemble_codes(rows, pieces, type_)
    pieces = [
        (at, value.dictionary_decode() if isinstance(value, pa.DictionaryArray) else value, is_whole)
        for at, value, is_whole in pieces
    ]
    if len(pieces) == 1 and len(pieces[0][0]) == rows and isinstance(pieces[0][1], pa.Array):
        return pieces[0][1]
    positions: Int64s = np.full(rows, -1, np.int64)
    chunks: list[Any] = []
    offset = 0
    for piece_rows, value, is_whole in pieces:
        if isinstance(value, pa.Scalar) and not value.is_valid:
            continue
        if isinstance(value, pa.Scalar):
            positions[piece_rows] = offset
            chunks.append(pa.repeat(value, 1).cast(type_))
        else:
            positions[piece_rows] = offset + (piece_rows if is_whole else np.arange(len(piece_rows)))
            chunks.append(value)
        offset += len(chunks[-1])
    if not chunks:
        return pa.nulls(rows, type_)
    whole = pa.concat_arrays(chunks) if len(chunks) > 1 else chunks[0]
    missing = positions < 0
    return whole.take(pa.array(positions, mask=missing if missing.any() else None))


def _assemble_codes(rows: int, pieces: list[Piece], type_: pa.DataType) -> pa.Array:
    """Assembles dictionaries and constants into one dictionary array without copying strings."""
    codes = np.full(rows, -1, np.int32)
    dictionaries: list[pa.Array] = []
    offset = 0
    for piece_rows, value, is_whole in pieces:
        if isinstance(value, pa.DictionaryArray):
            indices = value.indices.cast(pa.int32()).fill_null(-1).to_numpy()
            indices = indices[piece_rows] if is_whole else indices
            codes[piece_rows] = np.where(indices < 0, -1, indices + offset)
            dictionaries.append(value.dictionary.cast(type_))
        elif value.is_valid:
            codes[piece_rows] = offset
            dictionaries.append(pa.repeat(value, 1).cast(type_))
        else:
            continue
        offset += len(dictionaries[-1])
    if not dictionaries:
        return pa.nulls(rows, type_)
    missing = codes < 0
    return pa.DictionaryArray.from_arrays(
        pa.array(codes, mask=missing if missing.any() else None), pa.concat_arrays(dictionaries)
    )
