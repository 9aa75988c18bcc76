"""COMPILE PLAN, EXECUTE PLAN, COMPILE AND EXECUTE PLAN: plans in files, for statements and methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millstream.common.options import read
from millstream.common.options.table_options import FORCE_RECOMPILE
from millstream.planner.binding.calls import loaded
from millstream.planner.entries import ObjectPath, TableEntry
from millstream.planner.passes import optimised
from millstream.planner.passes.rewrite_sets import REPEAT_ROWS
from millstream.planner.plan_json import plan_from_json
from millstream.planner.relations import Sink
from millstream.planner.session import PlannerSession
from millstream.table.compiled_plan import plan_text, read_plan, replace_plan, write_plan

__all__ = ["compiled", "loaded_plan", "plan_of_file", "stored"]


def compiled(sinks: Sequence[Sink], session: PlannerSession) -> tuple[Sink, ...]:
    """The plan of INSERTs."""
    return optimised(sinks, session)


def stored(file: str, plan: tuple[Sink, ...], session: PlannerSession, keeps: bool) -> None:
    """Writes a plan into a file; the statement and the session decide whether to replace an existing one."""
    text = plan_text(plan, session)
    if read(FORCE_RECOMPILE, session.config):
        replace_plan(Path(file.removeprefix("file://")), text)
    else:
        write_plan(file, text, keeps)


def loaded_plan(text: str, where: str, session: PlannerSession) -> tuple[Sink, ...]:
    """Loads a stored plan, with this session's functions and its tables' secrets."""

    def function_named(name: str) -> object:
        if name == REPEAT_ROWS.name:
            return REPEAT_ROWS
        entry = session.find_system_function(name) or session.find_function(name)
        return None if entry is None else loaded(entry, None)

    def options_of_table(path: ObjectPath) -> dict[str, str] | None:
        entry = session.find_table(path)
        return dict(entry.options) if isinstance(entry, TableEntry) else None

    return plan_from_json(text, where, function_named, options_of_table)


def plan_of_file(file: str, session: PlannerSession) -> tuple[Sink, ...]:
    """The plan in a file."""
    return loaded_plan(read_plan(file), f"plan file '{file}'", session)
