"""Stored plans: a query that stays as it was planned when the program changes. Not built yet; EXPLAIN shows plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.errors import NotYetError
from millstream.table.explain_detail import ExplainDetail

if TYPE_CHECKING:
    from millstream.table.table_result import TableResult

__all__ = ["CompiledPlan"]

_COMES_WITH = "stored plans"
_INSTEAD = "explain() shows the plan, and the statement itself is run again"


class CompiledPlan:
    """A plan as data."""

    def __init__(self, j_compiled_plan: Any, t_env: Any) -> None:
        raise NotYetError.of("CompiledPlan", _COMES_WITH, _INSTEAD)

    def as_json_string(self) -> str:
        """The plan as JSON."""
        raise NotYetError.of("CompiledPlan.as_json_string", _COMES_WITH, _INSTEAD)

    def as_smile_bytes(self) -> bytes:
        """The plan as bytes."""
        raise NotYetError.of("CompiledPlan.as_smile_bytes", _COMES_WITH, _INSTEAD)

    def write_to_file(self, file: str, ignore_if_exists: bool = False) -> None:
        """Store the plan."""
        raise NotYetError.of("CompiledPlan.write_to_file", _COMES_WITH, _INSTEAD)

    def get_flink_version(self) -> str:
        """The version that made it."""
        raise NotYetError.of("CompiledPlan.get_flink_version", _COMES_WITH, _INSTEAD)

    def print_json_string(self) -> None:
        """Print the plan as JSON."""
        raise NotYetError.of("CompiledPlan.print_json_string", _COMES_WITH, _INSTEAD)

    def execute(self) -> TableResult:
        """Run the plan."""
        raise NotYetError.of("CompiledPlan.execute", _COMES_WITH, _INSTEAD)

    def explain(self, *extra_details: ExplainDetail) -> str:
        """How it would run."""
        raise NotYetError.of("CompiledPlan.explain", _COMES_WITH, _INSTEAD)

    def print_explain(self, *extra_details: ExplainDetail) -> None:
        """Print how it would run."""
        raise NotYetError.of("CompiledPlan.print_explain", _COMES_WITH, _INSTEAD)
