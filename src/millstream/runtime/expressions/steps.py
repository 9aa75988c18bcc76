"""The steps of a program, each of which reads slots and fills one slot. They are frozen data, created by `compile`.

A **slot** is a number: input columns have the first slots, constants the next, followed by one slot per step. A
**block** is a list of steps that run only on the rows that reach them, and the slot of their result. A block without
steps refers to a slot that is filled for all rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.expressions.data_type import DataType
from millstream.expressions.row_expressions import Call, UserCall

__all__ = ["Block", "CaseStep", "CoalesceStep", "KernelStep", "LogicStep", "Step", "UserStep"]


@dataclass(frozen=True)
class Step:
    """Fills `slot`."""

    slot: int


@dataclass(frozen=True)
class Block:
    """Steps, and the slot of their result."""

    steps: tuple[Step, ...]
    result: int


@dataclass(frozen=True)
class KernelStep(Step):
    """A built-in function. Runs over the dictionary of its only varying column if the column is encoded or the function
    `is_expensive`."""

    call: Call
    arguments: tuple[int, ...]
    is_deterministic: bool = True
    is_expensive: bool = False


@dataclass(frozen=True)
class UserStep(Step):
    """A user-defined function."""

    call: UserCall
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class LogicStep(Step):
    """AND or OR. Rows decided by an earlier block do not reach later blocks."""

    blocks: tuple[Block, ...]
    is_and: bool


@dataclass(frozen=True)
class CaseStep(Step):
    """CASE and IF: (condition, value) pairs, and the ELSE value (None: NULL)."""

    type: DataType
    branches: tuple[tuple[Block, Block], ...]
    otherwise: Block | None


@dataclass(frozen=True)
class CoalesceStep(Step):
    """COALESCE and IFNULL: the first value that is not NULL."""

    type: DataType
    blocks: tuple[Block, ...]
