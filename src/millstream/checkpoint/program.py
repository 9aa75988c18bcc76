"""The operators of a program as recorded in a manifest, for comparison with a later program.

A manifest records under `program`, by uid, the name and parallelism of each operator. Operators that the program no
longer has are not included, even if their state remains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from millstream.errors import StoreDamagedError
from millstream.storage.json_records import ALWAYS, Misfit, from_json, to_json

if TYPE_CHECKING:
    from millstream.checkpoint.manifest import Manifest

__all__ = ["ProgramOperator", "program_of", "program_to_json"]


@dataclass(frozen=True)
class ProgramOperator:
    """An operator: its name, its parallelism and its key groups. `uid` is the origin of its uid: "derived" from its
    position in the program, or None if set by the user."""

    name: str
    parallelism: Annotated[int | None, ALWAYS] = None
    max_parallelism: Annotated[int | None, ALWAYS] = None
    uid: Literal["derived"] | None = None


def program_to_json(operators: Mapping[str, ProgramOperator]) -> dict[str, Any]:
    """The operators as stored in a manifest."""
    return {uid: to_json(operator) for uid, operator in operators.items()}


def program_of(manifest: Manifest | None) -> Mapping[str, ProgramOperator]:
    """The operators recorded in a manifest, by uid; empty for None. The result is cached in the manifest.

    >>> from millstream.checkpoint.manifest import Manifest
    >>> program = program_to_json({"c1": ProgramOperator("count", 2, 128)})
    >>> program_of(Manifest("clicks", "j1", epoch=1, parent=0, created_ms=0, run="a1", program=program))["c1"].name
    'count'
    """
    return {} if manifest is None else manifest.derived(_read)


def _read(manifest: Manifest) -> Mapping[str, ProgramOperator]:
    operators = {}
    for uid, written in manifest.program.items():
        try:
            operators[uid] = from_json(ProgramOperator, None, written)
        except Misfit as misfit:
            raise StoreDamagedError(
                f"the manifest of epoch {manifest.epoch} describes operator '{uid}' as {written!r}, expected "
                f"{misfit.expected}. Was it written by another Millstream? Use that one, or restore it from a copy."
            ) from misfit
    return operators
