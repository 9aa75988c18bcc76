"""Stored plans: compiled INSERTs whose plan and uids stay the same when the program or the planner changes.

A plan is data (`planner/plan_json.py`): compiled once, stored in a file, and run unchanged. A job restarted from the
same plan finds its state, regardless of changes to the query's text or the catalog.
"""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.datastream.streams.argument_checks import at_users_line
from millstream.errors import NotAvailableError, ProgramError
from millstream.graph.site import refuse
from millstream.planner.binding.calls import loaded
from millstream.planner.passes.rewrite_sets import REPEAT_ROWS
from millstream.planner.plan_json import plan_to_json
from millstream.planner.relations import Sink
from millstream.pyflink_names import add_pyflink_names
from millstream.table.explain_detail import ExplainDetail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.user_functions import UserFunction
    from millstream.planner.session import PlannerSession
    from millstream.table.table_environment import TableEnvironment
    from millstream.table.table_result import TableResult

__all__ = ["CompiledPlan", "plan_text", "read_plan", "replace_plan", "write_plan"]


class CompiledPlan:
    """A plan as data, returned by `TableEnvironment.compile_plan_sql` and `load_plan`.

    >>> from millstream.table import EnvironmentSettings, TableEnvironment
    >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    >>> _ = t_env.execute_sql("CREATE TABLE t (a INT) WITH ('connector' = 'blackhole')")
    >>> t_env.compile_plan_sql("INSERT INTO t SELECT 1").as_json_string()[:25]
    '{\\n  "millstream plan": 2,'
    """

    def __init__(self, j_compiled_plan: Any, t_env: TableEnvironment) -> None:
        if not isinstance(j_compiled_plan, tuple) or not all(isinstance(each, Sink) for each in j_compiled_plan):
            raise refuse("CompiledPlan: make one by compile_plan_sql(...) or load_plan(...)")
        self._plan: tuple[Sink, ...] = j_compiled_plan
        self._t_env = t_env

    def as_json_string(self) -> str:
        """The plan as JSON."""
        with at_users_line():
            return plan_text(self._plan, self._t_env._session)

    def as_smile_bytes(self) -> bytes:
        """Not supported: Smile is a binary format of Java libraries."""
        raise NotAvailableError(
            "CompiledPlan.as_smile_bytes is not available: Smile is a binary form of JSON for Java libraries. "
            "as_json_string().encode() returns bytes"
        )

    def write_to_file(self, file: str | os.PathLike[str], ignore_if_exists: bool = False) -> None:
        """Stores the plan. With `ignore_if_exists` an existing file is left unchanged, otherwise it is an error."""
        with at_users_line():
            write_plan(os.fspath(file), plan_text(self._plan, self._t_env._session), ignore_if_exists)

    def get_flink_version(self) -> str:
        """The Millstream version that compiled it."""
        return _version()

    def print_json_string(self) -> None:
        """Prints the plan as JSON."""
        print(self.as_json_string())

    def execute(self) -> TableResult:
        """Runs the plan as a job, concurrently with the program."""
        from millstream.table.table_result import TableResult

        with at_users_line():
            return TableResult(self._t_env._runner.insert(self._plan, is_optimised=True))

    def explain(self, *extra_details: ExplainDetail) -> str:
        """The plan, as EXPLAIN shows it."""
        return self._t_env._runner.explained_plan(self._plan)

    def print_explain(self, *extra_details: ExplainDetail) -> None:
        """Prints the plan, as EXPLAIN shows it."""
        print(self.explain(*extra_details))


def plan_text(plan: Sequence[Sink], session: PlannerSession) -> str:
    """A plan as JSON text, with user functions referenced by their names in the session."""

    def name_of(function: UserFunction) -> str | None:
        if function is REPEAT_ROWS:
            return function.name
        names = (entry.name for entry in session.functions() if loaded(entry, None).function is function.function)
        return next(names, None)

    return plan_to_json(plan, _version(), name_of)


def _version() -> str:
    try:
        return version("millstream")
    except PackageNotFoundError:
        return "unknown"


def write_plan(file: str, text: str, keeps: bool) -> None:
    """Writes a plan into a file, atomically. `keeps`: leaves an existing file unchanged."""
    path = Path(file.removeprefix("file://"))
    if path.exists():
        if keeps:
            return
        raise ProgramError(
            f"Plan file '{file}' exists already. Write COMPILE PLAN … IF NOT EXISTS (ignore_if_exists=True) to use "
            "it, set 'table.plan.force-recompile' = 'true' to replace it, or choose another name"
        )
    replace_plan(path, text)


def replace_plan(path: Path, text: str) -> None:
    """Replaces the plan in a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Renamed when complete: a reader never sees a partial plan.
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        unfinished.write_text(text)
        unfinished.replace(path)
    except OSError as error:
        raise ProgramError(f"plan file '{path}' cannot be written: {error}") from error


def read_plan(file: str) -> str:
    """The text of a stored plan."""
    try:
        return Path(file.removeprefix("file://")).read_text()
    except FileNotFoundError:
        raise ProgramError(f"there is no plan file '{file}'. COMPILE PLAN '{file}' FOR INSERT … makes one") from None
    except (OSError, ValueError) as error:
        raise ProgramError(f"plan file '{file}' cannot be read: {error}") from error


add_pyflink_names(globals())
