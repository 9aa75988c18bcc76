"""A compiled program: expressions over the columns of a batch, computed for all rows at once.

The condition is computed first; the outputs only for the rows that pass it, and only the columns they need are taken.
A part that stands in several expressions is computed once. A program is data: it is pickled to the tasks as it is, and
`run` changes nothing in it, so that one program may be run by several threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as kinds

from millstream.expressions.row_expressions import UserCall
from millstream.expressions.user_functions import UserFunction
from millstream.runtime.expressions.execution import run_block, run_steps
from millstream.runtime.expressions.frames import DistinctResults, Frame, Int64s
from millstream.runtime.expressions.kernel import SessionFacts, Value, load_kernels
from millstream.runtime.expressions.selection import true_rows
from millstream.runtime.expressions.steps import Block

__all__ = ["Program", "Result"]


@dataclass(frozen=True)
class Result:
    """Output columns, and the rows of the input that passed the condition (None: all)."""

    columns: list[pa.Array]
    selected: Int64s | None

    @property
    def rows(self) -> int | None:
        """How many rows passed; None: all."""
        return None if self.selected is None else len(self.selected)


@dataclass(frozen=True)
class Program:
    """Steps of a condition and of outputs. `constants` are the values of their slots; columns have the first slots."""

    input_types: tuple[pa.DataType, ...]
    constants: tuple[tuple[int, pa.Scalar], ...]
    condition: Block | None
    outputs: Block
    output_slots: tuple[int, ...]
    output_types: tuple[pa.DataType, ...]
    user_calls: tuple[UserCall, ...] = ()

    def run(
        self,
        columns: Sequence[pa.Array],
        rows: int,
        session: SessionFacts,
        results: DistinctResults | None = None,
        *,
        gives_dictionaries: bool = False,
    ) -> Result:
        """Compute the outputs for the rows of these columns that pass the condition.

        `results` are those of the batch before, which may have the same dictionaries. `gives_dictionaries`: text may
        be given so."""
        if rows == 0:
            return Result([pa.nulls(0, type_) for type_ in self.output_types], None)
        load_kernels()
        frame = Frame(rows, session, results=results)
        pairs = zip(columns, self.input_types, strict=True)
        frame.values.update(enumerate(_as_declared(column, type_) for column, type_ in pairs))
        frame.values.update(self.constants)
        selected = None
        if self.condition is not None:
            selected = true_rows(run_block(frame, self.condition), rows)
            if selected is not None:
                frame = frame.selected(selected)
        if frame.rows == 0:
            return Result([pa.nulls(0, type_) for type_ in self.output_types], selected)
        run_steps(frame, self.outputs.steps)
        outputs = zip(self.output_slots, self.output_types, strict=True)
        return Result([_output(frame, slot, type_, gives_dictionaries) for slot, type_ in outputs], selected)

    def user_functions(self) -> tuple[UserFunction, ...]:
        """The program's functions that are called, each once: an operator opens and closes them."""
        return tuple(dict.fromkeys(call.function for call in self.user_calls))


def _as_declared(column: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    """One array of just the declared type, or a dictionary of it: kernels rely on that. Nested types are left alone."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    value_type = column.type.value_type if isinstance(column, pa.DictionaryArray) else column.type
    if value_type == type_ or kinds.is_nested(type_):
        return column
    return column.cast(type_)


def _output(frame: Frame, slot: int, type_: pa.DataType, gives_dictionaries: bool) -> pa.Array:
    value = frame.value(slot)
    if (
        gives_dictionaries
        and isinstance(value, pa.DictionaryArray)
        and value.type.value_type == type_
        and len(value.dictionary) <= len(value)
    ):
        return value
    return _column(frame.plain(slot), type_, frame.rows)


def _column(value: Value, type_: pa.DataType, rows: int) -> pa.Array:
    """A value as a column of a type."""
    if isinstance(value, pa.Scalar):
        value = pa.repeat(value.cast(type_), rows)
    return value if value.type == type_ else value.cast(type_)
