"""What a program consists of: steps, each of which reads slots and fills one. Frozen data, made by `compile`.

A **slot** is a number; columns of the input have the first ones, constants the next, every step its own. A **block** is
steps that are run only on the rows that reach them, and the slot of their result. A block without steps stands for a
slot that is filled for all rows anyway.
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
    """Steps, and the slot of what they are for."""

    steps: tuple[Step, ...]
    result: int


@dataclass(frozen=True)
class KernelStep(Step):
    """A built-in function. Run over the dictionary of its one varying column where that pays (`is_dear`) or is free."""

    call: Call
    arguments: tuple[int, ...]
    is_deterministic: bool = True
    is_dear: bool = False


@dataclass(frozen=True)
class UserStep(Step):
    """A function of the program's."""

    call: UserCall
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class LogicStep(Step):
    """AND or OR. Rows that an earlier block decided do not reach the later ones."""

    blocks: tuple[Block, ...]
    is_and: bool


@dataclass(frozen=True)
class CaseStep(Step):
    """CASE and IF: (condition, value) pairs, and what holds where no condition does (None: NULL)."""

    type: DataType
    branches: tuple[tuple[Block, Block], ...]
    otherwise: Block | None


@dataclass(frozen=True)
class CoalesceStep(Step):
    """COALESCE and IFNULL: the first block that is not NULL."""

    type: DataType
    blocks: tuple[Block, ...]
