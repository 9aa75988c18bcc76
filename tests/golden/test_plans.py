"""The effect of each pass on a plan, and of all passes on a query, recorded as text.

A file of `plans` is named after a pass; it contains queries over the tables of `sql_statements/unbound_tables.sql`, the
plan before the pass, and the plan after it. `explained.txt` contains the output of EXPLAIN. After an intended change,
`MILLSTREAM_REWRITE=1 pytest tests/golden/test_plans.py` rewrites them: review the difference.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from millstream.planner.binder import bind_query
from millstream.planner.explain import explained, plan_tree
from millstream.planner.passes import PASSES
from millstream.planner.relations import Sink
from millstream.planner.session import PlannerSession
from millstream.planner.statements import bind_insert, run
from millstream.planner.table_operations import collect
from millstream.sql.parser import parse_statements
from millstream.sql.statements import Explain, Insert, QueryStatement

HERE = Path(__file__).parent
TABLES = HERE / "sql_statements" / "unbound_tables.sql"
STORY = re.compile(r"^=== (.+)\n((?:(?!^--- ).*\n)*?)---\n((?:(?!^=== ).*\n)*)", re.MULTILINE)
PAGES = sorted((HERE / "plans").glob("*.txt"))


class Target:
    """A query's sink: the program."""

    name = "collect"


def session_with_tables() -> PlannerSession:
    session = PlannerSession()
    for statement in parse_statements(TABLES.read_text()):
        run(statement, session)
    return session


def sinks_of(text: str, session: PlannerSession) -> tuple[Sink, ...]:
    """The sinks of the statements; definitions among them are executed."""
    sinks = []
    for statement in parse_statements(text.rstrip("\n")):
        inner = statement.statement if isinstance(statement, Explain) else statement
        if isinstance(inner, Insert):
            sinks.append(bind_insert(inner, session))
        elif isinstance(inner, QueryStatement):
            sinks.append(collect(bind_query(inner.query, session), Target()))
        else:
            run(inner, session)
    return tuple(sinks)


def shown(page: str, text: str) -> str:
    session = session_with_tables()
    sinks = sinks_of(text, session)
    if page == "explained":
        details = [each.details for each in parse_statements(text.rstrip("\n")) if isinstance(each, Explain)]
        return explained(sinks, session, details[0])
    names = [each.__name__ for each in PASSES]
    place = len(names) - 1 - names[::-1].index(page) if page == "share_subplans" else names.index(page)
    for each in PASSES[:place]:
        sinks = each(sinks, session)
    after = PASSES[place](sinks, session)
    return f"before:\n{plan_tree(sinks)}\n\nafter:\n{plan_tree(after)}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_plans_match_the_recorded_ones(path: Path) -> None:
    written = STORY.findall(path.read_text())
    assert len(written) == len(re.findall("^=== ", path.read_text(), re.MULTILINE)) > 0
    seen = [shown(path.stem, text).strip("\n") for _, text, _ in written]
    if os.environ.get("MILLSTREAM_REWRITE"):
        parts = [f"=== {title}\n{text}---\n{plan}\n" for (title, text, _), plan in zip(written, seen, strict=True)]
        path.write_text("\n".join(parts))
        return
    for (title, _, expected), plan in zip(written, seen, strict=True):
        assert plan == expected.strip("\n"), f"{path.stem}: {title}"


def test_passes_that_change_plans_have_a_page() -> None:
    silent = {
        "infer_changes",
        "validate_overs",
        "check_sink",
        "check_determinism",
        "name_operators",
        "push_into_sources",
    }
    assert {each.__name__ for each in PASSES} - silent == {path.stem for path in PAGES} - {"explained"}
