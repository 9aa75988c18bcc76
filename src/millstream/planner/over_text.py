"""OVER as a line of a plan, named as Flink names it."""

from __future__ import annotations

from millstream.planner.relations import Over, OverCall, StateHints

__all__ = ["over_text", "state_hint_text"]

_WITHOUT_FRAMES = ("ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST", "NTILE", "LAG", "LEAD")


def over_text(relation: Over) -> str:
    """The partition, the order, the frames, and what is computed."""
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
    """How long state is kept, where a hint says it; "" elsewhere."""
    lengths = dict(hints).get("STATE_TTL", ())
    names = ("left", "right") if len(lengths) == 2 else ("",)
    told = [f"{name}={length}" if name else length for name, length in zip(names, lengths, strict=False) if length]
    return f", stateTtlHints=[[[STATE_TTL options:{{{', '.join(told)}}}]]]" if told else ""


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
