"""Expressions → a program, once per task.

Parts that are equal get one slot, unless they are not deterministic. Arguments of AND, OR, CASE and COALESCE that may
fail, are dear, or call the program's own code become blocks, run only on rows that reach them; a part that the rows
above them have computed already is taken from there. The outputs are such a block, too: behind the condition.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millstream.expressions.casts import can_cast
from millstream.expressions.coercion import arrow_value
from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import definition_of
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression, UserCall, walk
from millstream.expressions.types import DoubleType, FloatType, NumericType
from millstream.runtime.expressions.program import Program
from millstream.runtime.expressions.steps import Block, CaseStep, CoalesceStep, KernelStep, LogicStep, Step, UserStep

__all__ = ["compile_program", "may_fail"]


def compile_program(
    outputs: Sequence[RowExpression], input_types: Sequence[DataType], condition: RowExpression | None = None
) -> Program:
    """The program that computes `outputs` for the rows of which `condition` is TRUE (None: all rows)."""
    slots = _Slots(len(input_types))
    scope = _Scope(slots)
    condition_block = None
    if condition is not None:
        result = scope.slot_of(condition)
        condition_block = Block(tuple(scope.steps), result)
        scope = _Scope(slots, scope)
    output_slots = tuple(scope.slot_of(output) for output in outputs)
    everything = [*outputs] if condition is None else [condition, *outputs]
    return Program(
        len(input_types),
        tuple(slots.constants.items()),
        condition_block,
        Block(tuple(scope.steps), -1),
        output_slots,
        tuple(output.type.arrow for output in outputs),
        tuple(part for whole in everything for part in walk(whole) if isinstance(part, UserCall)),
    )


class _Slots:
    """Numbers for columns, constants and steps, each given once."""

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
    """The steps for one set of rows, and which expressions they have computed. `above`: for the rows these are of."""

    def __init__(self, slots: _Slots, above: _Scope | None = None) -> None:
        self.slots = slots
        self.above = above
        self.steps: list[Step] = []
        self.known: dict[RowExpression, int] = {}

    def known_slot(self, expression: RowExpression) -> int | None:
        """The slot that has the expression already."""
        scope: _Scope | None = self
        while scope is not None:
            slot = scope.known.get(expression)
            if slot is not None:
                return slot
            scope = scope.above
        return None

    def slot_of(self, expression: RowExpression) -> int:
        """The slot of an expression for all rows of this scope; steps are added where it is not there yet."""
        if isinstance(expression, Column):
            return expression.index
        if isinstance(expression, Literal):
            return self.slots.constant(expression)
        slot = self.known_slot(expression)
        if slot is None:
            step = self._step(expression)
            self.steps.append(step)
            slot = step.slot
            if is_deterministic(expression):
                self.known[expression] = slot
        return slot

    def _step(self, expression: RowExpression) -> Step:
        if isinstance(expression, UserCall):
            arguments = tuple(self.slot_of(argument) for argument in expression.arguments)
            return UserStep(self.slots.new(), expression, arguments)
        if not isinstance(expression, Call):
            raise TypeError(f"no step for {expression!r}")
        match expression.function:
            case "AND" | "OR":
                blocks = self._blocks_after_first(expression.arguments)
                return LogicStep(self.slots.new(), blocks, expression.function == "AND")
            case "CASE" | "IF":
                return self._case_step(expression)
            case "COALESCE" | "IFNULL":
                blocks = self._blocks_after_first(expression.arguments)
                return CoalesceStep(self.slots.new(), expression.type, blocks)
        arguments = tuple(self.slot_of(argument) for argument in expression.arguments)
        definition = definition_of(expression.function)
        is_dear = definition is not None and definition.is_dear
        deterministic = definition is None or definition.deterministic
        return KernelStep(self.slots.new(), expression, arguments, deterministic, is_dear)

    def _case_step(self, call: Call) -> CaseStep:
        arguments = call.arguments
        branches = []
        for position in range(0, len(arguments) - 1, 2):
            condition = arguments[position]
            tested = Block((), self.slot_of(condition)) if position == 0 else self._block(condition)
            branches.append((tested, self._block(arguments[position + 1])))
        otherwise = self._block(arguments[-1]) if len(arguments) % 2 else None
        return CaseStep(self.slots.new(), call.type, tuple(branches), otherwise)

    def _blocks_after_first(self, arguments: Sequence[RowExpression]) -> tuple[Block, ...]:
        """All rows reach the first argument; the others are blocks where they need to be."""
        first = Block((), self.slot_of(arguments[0]))
        return (first, *(self._block(argument) for argument in arguments[1:]))

    def _block(self, expression: RowExpression) -> Block:
        """Steps of its own where the expression is to be run only on rows that reach it."""
        if not self._is_guarded(expression):
            return Block((), self.slot_of(expression))
        scope = _Scope(self.slots, self)
        result = scope.slot_of(expression)
        return Block(tuple(scope.steps), result)

    def _is_guarded(self, expression: RowExpression) -> bool:
        """Whether a part may fail, is dear or is the program's own, and is not computed for all rows anyway."""
        if isinstance(expression, Column | Literal) or self.known_slot(expression) is not None:
            return False
        if isinstance(expression, UserCall) or (
            isinstance(expression, Call) and (may_fail(expression) or _is_dear(expression))
        ):
            return True
        return any(self._is_guarded(argument) for argument in getattr(expression, "arguments", ()))


def is_deterministic(expression: RowExpression) -> bool:
    """Whether two computations of it give the same value."""
    for part in walk(expression):
        if isinstance(part, UserCall) and not part.function.is_deterministic:
            return False
        if isinstance(part, Call):
            definition = definition_of(part.function)
            if definition is not None and not definition.deterministic:
                return False
    return True


def _is_dear(call: Call) -> bool:
    definition = definition_of(call.function)
    return definition is not None and definition.is_dear


def may_fail(call: Call) -> bool:
    """Whether the call itself can raise for some values of its arguments."""
    definition = definition_of(call.function)
    if definition is not None and not definition.may_fail:
        return False
    if call.function == "CAST":
        from_, to = call.arguments[0].type, call.type
        is_numeric = isinstance(from_, NumericType) and isinstance(to, NumericType)
        return not (is_numeric or can_cast(from_.nullable(), to.nullable(), explicit=False))
    if call.function in ("/", "%", "MOD"):
        divisor = call.arguments[1]
        if isinstance(call.type, FloatType | DoubleType):
            return False
        return not isinstance(divisor, Literal) or divisor.value is None or divisor.value == 0
    return True
