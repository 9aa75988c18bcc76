"""Enforcement of text and binary lengths in sinks: ignored, trimmed and padded, or rejected."""

from __future__ import annotations

from typing import Any

import pytest
from programs.relations import table

from millstream.errors import JobFailedError
from millstream.expressions import types
from millstream.graph.table_nodes import EnforceRows
from millstream.planner.lowering import context as lowering_context
from millstream.testing import Collect, run

COLUMNS = {"c": types.CharType(3), "v": types.VarCharType(3), "b": types.BinaryType(2), "w": types.VarBinaryType(2)}
ROWS = [("a", "abcd", b"x", b"xyz"), (None, "ab", None, None), ("äöüß", "äöüß", b"abc", b"")]


def enforce(lengths: str, rows: list[Any]) -> list[Any]:
    """Rows after the enforcing operator."""
    out = Collect()

    def build(env: Any) -> None:
        from millstream.planner.lowering import _RULES
        from millstream.planner.session import PlannerSession

        scan = table(COLUMNS, rows)
        context = lowering_context.Lowering(env._builder, PlannerSession(), _RULES)
        lowered = context.lowered(scan)
        made = context.added(EnforceRows("error", lengths), "ConstraintEnforcer", lowered.nodes, lowered.row_type)
        from millstream.graph.nodes import Write

        context.add(Write(out), "Sink", made.nodes, None)

    run(build)
    return [tuple(row) for row in out.values]


def test_lengths_are_ignored() -> None:
    assert enforce("ignore", ROWS) == ROWS


def test_texts_and_bytes_are_trimmed_and_padded() -> None:
    assert enforce("trim_pad", ROWS) == [
        ("a  ", "abc", b"x\0", b"xy"),
        (None, "ab", None, None),
        ("äöü", "äöü", b"ab", b""),
    ]


@pytest.mark.parametrize(("row", "name"), [(("abc", "abcd", b"xy", b""), "v"), (("a", "", b"xy", b""), "c")])
def test_a_value_of_the_wrong_length_is_rejected(row: Any, name: str) -> None:
    with pytest.raises(JobFailedError, match=f"Column '{name}' is .*however, a string or binary value of length"):
        enforce("error", [("abc", "", b"xy", b""), row])
