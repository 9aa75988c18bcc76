"""A compiled program: expressions over the columns of a batch, computed for all rows at once.

`run` computes the condition first, then the outputs for the rows that pass it, copying only the columns they need. A
subexpression shared by several expressions is computed once. A program is immutable data: it is pickled and sent to
tasks, and several threads may run one program.
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
        """The number of rows that passed; None: all."""
        return None if self.selected is None else len(self.selected)


@dataclass(frozen=True)
class Program:
    """The steps of the condition and of the outputs. Columns have the first slots; `constants` maps slots to values."""

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
        emit_dictionaries: bool = False,
    ) -> Result:
        """Compute the outputs for the rows of these columns that pass the condition.

        `results` are the results of the previous batch, reused if this one has the same dictionaries.
        `emit_dictionaries` allows strings to be emitted dictionary-encoded."""
        if rows == 0:
            return Result([pa.nulls(0, type_) for type_ in self.output_types], None)
        load_kernels()
        frame = Frame(rows, session, results=results)
        pairs = zip(columns, self.input_types, strict=True)
        frame.values.update(enumerate(_cast_input(column, type_) for column, type_ in pairs))
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
        return Result([_output(frame, slot, type_, emit_dictionaries) for slot, type_ in outputs], selected)

    def user_functions(self) -> tuple[UserFunction, ...]:
        """The distinct user-defined functions of the program, for the operator to open and close."""
        return tuple(dict.fromkeys(call.function for call in self.user_calls))


def _cast_input(column: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    """One array of exactly the declared type, or a dictionary of it, as kernels require. Nested types are unchanged."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    value_type = column.type.value_type if isinstance(column, pa.DictionaryArray) else column.type
    if value_type == type_ or kinds.is_nested(type_):
        return column
    return column.cast(type_)


def _output(frame: Frame, slot: int, type_: pa.DataType, emit_dictionaries: bool) -> pa.Array:
    value = frame.value(slot)
    if (
        emit_dictionaries
        and isinstance(value, pa.DictionaryArray)
        and value.type.value_type == type_
        and len(value.dictionary) <= len(value)
    ):
        return value
    return _column(frame.decoded(slot), type_, frame.rows)


def _column(value: Value, type_: pa.DataType, rows: int) -> pa.Array:
    """Casts a value to a column of the type."""
    if isinstance(value, pa.Scalar):
        value = pa.repeat(value.cast(type_), rows)
    return value if value.type == type_ else value.cast(type_)
