"""OVER, Top-N and hints in plan output, with Flink's names."""

from __future__ import annotations

from millstream.planner.entries import Options
from millstream.planner.relations import Over, OverCall, Rank, StateHints
from millstream.planner.window_ranks import WindowRank
from millstream.redaction import redacted_options

__all__ = ["options_hint_text", "over_text", "rank_text", "state_hint_text"]

_WITHOUT_FRAMES = ("ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST", "NTILE", "LAG", "LEAD")


def over_text(relation: Over) -> str:
    """The partition, the order, the frames and the calls."""
    names = relation.input.schema.names
    parts = []
    if relation.partition:
        parts.append(f"partitionBy=[{', '.join(names[column] for column in relation.partition)}]")
    if relation.order:
        order = ", ".join(f"{names[key.column]} {'DESC' if key.descending else 'ASC'}" for key in relation.order)
        parts.append(f"orderBy=[{order}]")
    framed = [call for call in relation.calls if call.call.function not in _WITHOUT_FRAMES]
    if framed:
        parts.append(f"window=[{', '.join(dict.fromkeys(_frame(call) for call in framed))}]")
    columns = [*names, *(_call(call, names) for call in relation.calls)]
    return f"OverAggregate({', '.join(parts)}, select=[{', '.join(columns)}]{state_hint_text(relation.hints)})"


def state_hint_text(hints: StateHints) -> str:
    """The state lifetimes set by hints, or ""."""
    lengths = dict(hints).get("STATE_TTL", ())
    names = ("left", "right") if len(lengths) == 2 else ("",)
    lifetimes = [f"{name}={length}" if name else length for name, length in zip(names, lengths, strict=False) if length]
    return f", stateTtlHints=[[[STATE_TTL options:{{{', '.join(lifetimes)}}}]]]" if lifetimes else ""


def options_hint_text(options: Options) -> str:
    """The options of an OPTIONS hint, without secrets, or ""."""
    shown = ", ".join(f"{key}={value}" for key, value in redacted_options(dict(options)).items())
    return f", hints=[[[OPTIONS options:{{{shown}}}]]]" if options else ""


def _call(over: OverCall, names: tuple[str, ...]) -> str:
    call = over.call
    arguments = ", ".join(names[argument] for argument in call.arguments)
    if not arguments and call.function == "COUNT":
        arguments = "*"
    distinct = "DISTINCT " if call.distinct else ""
    filtered = f" FILTER {names[call.filter]}" if call.filter is not None else ""
    name = call.function or getattr(call.user, "name", "function")
    return f"{name}({distinct}{arguments}){filtered} AS {call.name}"


def _frame(call: OverCall) -> str:
    start = _bound(None if call.preceding is None else -call.preceding, "PRECEDING")
    return f"{call.frame} BETWEEN {start} AND {_bound(call.following, 'FOLLOWING')}"


def _bound(distance: float | None, side: str) -> str:
    if distance is None:
        return f"UNBOUNDED {side}"
    if not distance:
        return "CURRENT ROW"
    return f"{abs(distance)} {'PRECEDING' if distance < 0 else 'FOLLOWING'}"


def rank_text(relation: Rank) -> str:
    """Top-N: `Rank(…)`, `WindowRank(…)`."""
    names = relation.input.schema.names
    grouped = ", ".join(names[column] for column in relation.partition)
    order = ", ".join(f"{names[key.column]} {'DESC' if key.descending else 'ASC'}" for key in relation.order)
    bounds = f"rankStart={relation.first}, rankEnd={relation.last}"
    parts = f"partitionBy=[{grouped}], orderBy=[{order}], select=[{', '.join(relation.schema.names)}]"
    name, window, hinted = "Rank", "", state_hint_text(relation.hints)
    if isinstance(relation, WindowRank):
        start, end = relation.bounds
        name, window = "WindowRank", f"window=[win_start=[{names[start]}], win_end=[{names[end]}]], "
        hinted = ""  # its rows expire with their window
    return f"{name}({window}rankType=[{relation.kind}], rankRange=[{bounds}], {parts}{hinted})"
