"""Warns at job start about joins with unbounded state, and joins that expire rows they may still need.

A regular join removes a row when it is deleted, when no later row can match it (`derive_expiry`), or when its
time-to-live ends. Otherwise state grows with the stream. A time-to-live guarantees nothing: an expired row may still be
needed, and then results are wrong.
"""

from __future__ import annotations

from millstream.common.options import SQL_UNBOUNDED_JOINS, read
from millstream.errors import SqlError
from millstream.graph.notices import warn_once
from millstream.graph.site import here
from millstream.planner.plan_text import physical_line
from millstream.planner.relations import Join, Relation
from millstream.planner.session import PlannerSession
from millstream.sql.places import problem

__all__ = ["warn_about_growth"]

_TEXT_BYTES = 32
_ROW_BYTES = 24
"""The overhead of a stored row, besides its columns, before compression."""


def warn_about_growth(join: Join, ttls_ms: tuple[int | None, int | None], session: PlannerSession) -> None:
    """Warns about or rejects a join with unbounded state; warns about one whose time-to-live may expire needed rows."""
    if session.is_batch:
        return
    sides = tuple(zip(("left", "right"), join.inputs, join.expiries, ttls_ms, strict=True))
    choice = read(SQL_UNBOUNDED_JOINS, session.config)
    growing = [(name, side) for name, side, expiries, ttl_ms in sides if not expiries and ttl_ms is None]
    if growing and choice != "allow":
        sentence = _growth(join, growing)
        if choice == "refuse":
            raise _refusal(sentence, join)
        warn_once(f"growing join {join.uid}", sentence, here())
    losing = [name for name, _, expiries, ttl_ms in sides if not expiries and ttl_ms is not None]
    if losing:
        words = " and ".join(losing)
        warn_once(
            f"time-to-live of join {join.uid}",
            f"a join expires rows of its {words} side by processing time: rows that arrive later find no match, so its "
            f"results may differ from those of the whole tables: {physical_line(join)}",
            here(),
        )


def _growth(join: Join, growing: list[tuple[str, Relation]]) -> str:
    sizes = " and ".join(f"about {_row_bytes(side)} bytes for each row of the {name} side" for name, side in growing)
    return (
        f"the state of a join grows without bound: {sizes}. Bound the times of both sides in its condition, join in "
        f"windows, or set 'table.exec.state.ttl' or a STATE_TTL hint: {physical_line(join)}"
    )


def _row_bytes(side: Relation) -> int:
    """The approximate size of a row in the store."""
    total = _ROW_BYTES
    for each in side.schema.types:
        try:
            total += max(1, each.arrow.bit_width // 8)
        except ValueError:
            total += _TEXT_BYTES
    return total


def _refusal(sentence: str, join: Join) -> SqlError:
    return problem(
        f"{sentence}. It is rejected since '{SQL_UNBOUNDED_JOINS.key}' is 'refuse'", getattr(join.site, "span", None)
    )
