"""Compiles expressions into a program, once per task.

Equal deterministic expressions share one slot. Arguments of AND, OR, CASE and COALESCE that may fail, are expensive or
call user-defined functions become blocks, which run only on the rows that reach them; a block reuses slots already
computed for its parent's rows. The outputs are also a block, which runs on the rows that pass the condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.expressions.casts import can_cast
from millstream.expressions.coercion import arrow_value
from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import definition_of
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression, UserCall
from millstream.expressions.types import DecimalType, DoubleType, FloatType, NumericType
from millstream.runtime.expressions.exact_products import simplify_product
from millstream.runtime.expressions.program import Program
from millstream.runtime.expressions.steps import Block, CaseStep, CoalesceStep, KernelStep, LogicStep, Step, UserStep

__all__ = ["compile_program", "may_fail"]


def compile_program(
    outputs: Sequence[RowExpression], input_types: Sequence[DataType], condition: RowExpression | None = None
) -> Program:
    """Compiles `outputs`, evaluated for the rows where `condition` is TRUE (None: all rows)."""
    parts = _ExpressionIndex()
    slots = _Slots(len(input_types))
    scope = _Scope(slots)
    condition_block = None
    if condition is not None:
        result = scope.slot_of(parts.add(condition))
        condition_block = Block(tuple(scope.steps), result)
        scope = _Scope(slots, scope)
    output_slots = tuple(scope.slot_of(parts.add(output)) for output in outputs)
    return Program(
        tuple(type_.arrow for type_ in input_types),
        tuple(slots.constants.items()),
        condition_block,
        Block(tuple(scope.steps), -1),
        output_slots,
        tuple(output.type.arrow for output in outputs),
        parts.user_calls(),
    )


@dataclass(frozen=True, eq=False)
class _Part:
    """A distinct expression of the program, shared by all its occurrences."""

    expression: RowExpression
    parts: tuple[_Part, ...]
    is_deterministic: bool
    is_guarded: bool  # the call itself, not its arguments, may fail, is expensive, or is user-defined


class _ExpressionIndex:
    """Maps equal expressions to one part. Visits each object once, so deep and shared trees are cheap."""

    def __init__(self) -> None:
        self._by_object: dict[int, _Part] = {}
        self._by_content: dict[Any, _Part] = {}
        self._pinned: list[RowExpression] = []  # keeps the objects alive, so that no id is reused

    def add(self, expression: RowExpression) -> _Part:
        """Returns the part of an expression; enters it if it is new."""
        part = self._by_object.get(id(expression))
        if part is None:
            chosen = simplify_product(expression)
            parts = tuple(self.add(argument) for argument in getattr(chosen, "arguments", ()))
            content = self._content(chosen, parts)
            part = self._by_content.get(content)
            if part is None:
                part = self._by_content[content] = _new_part(chosen, parts)
            self._by_object[id(expression)] = part
            self._pinned.append(expression)
        return part

    def _content(self, expression: RowExpression, parts: tuple[_Part, ...]) -> Any:
        if isinstance(expression, Call):
            options = tuple((name, repr(value)) for name, value in expression.options)
            return expression.type, expression.function, options, parts
        if isinstance(expression, UserCall):
            return expression.type, id(expression.function), parts
        return expression

    def user_calls(self) -> tuple[UserCall, ...]:
        """The calls of user-defined functions."""
        expressions = (part.expression for part in self._by_content.values())
        return tuple(call for call in expressions if isinstance(call, UserCall))


def _new_part(expression: RowExpression, parts: tuple[_Part, ...]) -> _Part:
    deterministic, guarded = True, False
    if isinstance(expression, UserCall):
        deterministic, guarded = expression.function.is_deterministic, True
    elif isinstance(expression, Call):
        definition = definition_of(expression.function)
        deterministic = definition is None or definition.deterministic
        guarded = may_fail(expression) or (definition is not None and definition.is_expensive)
    return _Part(expression, parts, deterministic and all(each.is_deterministic for each in parts), guarded)


class _Slots:
    """Allocates slot numbers for columns, constants and steps."""

    def __init__(self, columns: int) -> None:
        self.next_slot = columns
        self.constants: dict[int, pa.Scalar] = {}
        self.constant_slots: dict[Literal, int] = {}

    def new(self) -> int:
        self.next_slot += 1
        return self.next_slot - 1

    def constant(self, literal: Literal) -> int:
        slot = self.constant_slots.get(literal)
        if slot is None:
            slot = self.constant_slots[literal] = self.new()
            self.constants[slot] = arrow_value(literal)
        return slot


class _Scope:
    """The steps for one set of rows, and the slots they fill. `parent`: scope of a superset of the rows."""

    def __init__(self, slots: _Slots, parent: _Scope | None = None) -> None:
        self.slots = slots
        self.parent = parent
        self.steps: list[Step] = []
        self.slots_by_part: dict[_Part, int] = {}

    def existing_slot(self, part: _Part) -> int | None:
        """The slot already filled with the part here or in a parent scope."""
        scope: _Scope | None = self
        while scope is not None:
            slot = scope.slots_by_part.get(part)
            if slot is not None:
                return slot
            scope = scope.parent
        return None

    def slot_of(self, part: _Part) -> int:
        """The slot of a part for all rows of this scope; adds the steps that fill it if necessary."""
        if isinstance(part.expression, Column):
            return part.expression.index
        if isinstance(part.expression, Literal):
            return self.slots.constant(part.expression)
        slot = self.existing_slot(part)
        if slot is None:
            step = self._step(part)
            self.steps.append(step)
            slot = step.slot
            if part.is_deterministic:
                self.slots_by_part[part] = slot
        return slot

    def _step(self, part: _Part) -> Step:
        expression = part.expression
        if isinstance(expression, UserCall):
            arguments = self._slots_of(part)
            return UserStep(self.slots.new(), expression, arguments)
        if not isinstance(expression, Call):
            raise TypeError(f"no step for {expression!r}")
        match expression.function:
            case "AND" | "OR":
                return LogicStep(self.slots.new(), self._blocks_after_first(part), expression.function == "AND")
            case "CASE" | "IF":
                return self._case_step(part)
            case "COALESCE" | "IFNULL":
                return CoalesceStep(self.slots.new(), expression.type, self._blocks_after_first(part))
        definition = definition_of(expression.function)
        is_expensive = definition is not None and definition.is_expensive
        deterministic = definition is None or definition.deterministic
        arguments = self._slots_of(part)
        return KernelStep(self.slots.new(), expression, arguments, deterministic, is_expensive)

    def _slots_of(self, part: _Part) -> tuple[int, ...]:
        return tuple(self.slot_of(each) for each in part.parts)

    def _case_step(self, part: _Part) -> CaseStep:
        arguments = part.parts
        branches = []
        for position in range(0, len(arguments) - 1, 2):
            condition = arguments[position]
            test = Block((), self.slot_of(condition)) if position == 0 else self._block(condition)
            branches.append((test, self._block(arguments[position + 1])))
        otherwise = self._block(arguments[-1]) if len(arguments) % 2 else None
        return CaseStep(self.slots.new(), part.expression.type, tuple(branches), otherwise)

    def _blocks_after_first(self, part: _Part) -> tuple[Block, ...]:
        """All rows reach the first argument; later arguments become blocks if guarded."""
        first = Block((), self.slot_of(part.parts[0]))
        return (first, *(self._block(argument) for argument in part.parts[1:]))

    def _block(self, part: _Part) -> Block:
        """A block with steps if the part must run only on the rows that reach it, else a block that refers to its
        slot."""
        if not self._is_guarded(part):
            return Block((), self.slot_of(part))
        scope = _Scope(self.slots, self)
        result = scope.slot_of(part)
        return Block(tuple(scope.steps), result)

    def _is_guarded(self, part: _Part) -> bool:
        """Whether part of it may fail, is expensive or is user-defined, and is not yet computed for all rows."""
        if isinstance(part.expression, Column | Literal) or self.existing_slot(part) is not None:
            return False
        return part.is_guarded or any(self._is_guarded(each) for each in part.parts)


def may_fail(call: Call) -> bool:
    """Whether the call itself, apart from its arguments, can raise for some values."""
    definition = definition_of(call.function)
    if definition is not None and not definition.may_fail:
        return False
    if call.function == "CAST":
        from_, to = call.arguments[0].type, call.type
        if isinstance(from_, FloatType | DoubleType) and isinstance(to, DecimalType):
            return True  # DECIMAL cannot represent Infinity or NaN
        is_numeric = isinstance(from_, NumericType) and isinstance(to, NumericType)
        return not (is_numeric or can_cast(from_.nullable(), to.nullable(), explicit=False))
    if call.function in ("/", "%", "MOD"):
        divisor = call.arguments[1]
        if isinstance(call.type, FloatType | DoubleType):
            return False
        return not isinstance(divisor, Literal) or divisor.value is None or divisor.value == 0
    return True
