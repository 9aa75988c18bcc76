"""How long operators keep what nobody touches, and what is told of it when a job starts.

A hint of the SELECT (STATE_TTL) says it of its own groups and rows, else the session's 'table.exec.state.ttl'; 0 is for
ever. What is forgotten may still be needed, and then results are wrong: that is told. In BATCH nothing is forgotten.
"""

from __future__ import annotations

from millstream.common.options.quantities import parse_duration_ms
from millstream.common.options.table_options import STATE_LIFETIME
from millstream.graph.notices import warn_once
from millstream.graph.site import here
from millstream.planner.binding.hints import STATE_TTL
from millstream.planner.lowering.context import Lowering
from millstream.planner.plan_text import physical_line
from millstream.planner.relations import Aggregate, Over, Rank

__all__ = ["kept_ms", "kept_sides_ms"]


def kept_sides_ms(hints: tuple[tuple[str, tuple[str, ...]], ...], sides: int, context: Lowering) -> list[int | None]:
    """How long rows of each input are kept; None: for ever."""
    if context.session.is_batch:
        return [None] * sides
    general = context.duration_ms(STATE_LIFETIME.key)
    hinted = dict(hints).get(STATE_TTL, ("",) * sides)
    return [(parse_duration_ms(each) or None) if each else general for each in hinted]


def kept_ms(relation: Aggregate | Rank | Over, context: Lowering) -> int | None:
    """How long groups or rows are kept since they were last written; None: for ever."""
    [ttl_ms] = kept_sides_ms(relation.hints, 1, context)
    if ttl_ms is not None:
        text = _WARNINGS[type(relation)].format(ttl_ms=ttl_ms)
        sentence = f"{text}, so results may differ from those of the whole table: {physical_line(relation)}"
        warn_once(f"time-to-live {ttl_ms} of {relation.uid}", sentence, here())
    return ttl_ms


_WARNINGS = {
    Aggregate: "a group is forgotten when no row has come for it in {ttl_ms} ms of the clock: it begins anew with the "
    "next one, what was given of it is not taken back, and rows that go later are not missed",
    Rank: "rows of a Top-N or a deduplication are forgotten {ttl_ms} ms of the clock after they came: rows that come "
    "later may stand in their place, or come a second time",
    Over: "rows of an OVER are forgotten {ttl_ms} ms of the clock after they came: others are computed without them",
}
