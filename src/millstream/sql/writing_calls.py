"""Calls as text, added to `written`: operators, functions with keywords inside, aggregates and windows."""

from __future__ import annotations

from typing import Any

from millstream.sql.keywords import PARENTHESISLESS, RESERVED, is_function_word
from millstream.sql.syntax import (
    Aggregated,
    Argument,
    Call,
    Descriptor,
    Frame,
    FrameBound,
    OrderItem,
    Over,
    TableArgument,
    WindowSpec,
)
from millstream.sql.writing_expressions import (
    BINARY,
    CHAINED,
    PLAIN,
    RANGED,
    SIGNED,
    commas,
    name_text,
    operand,
    path_text,
    written,
)

__all__ = ["call_text"]


@written.register
def _call(node: Call) -> str:
    return call_text(node)


def call_text(node: Call, inside: str = "", order: str = "") -> str:
    """A call; `inside` precedes its arguments (DISTINCT), `order` follows them."""
    name, arguments = node.name, node.arguments
    if not node.path and len(arguments) == 2 and name in BINARY:
        level = BINARY[name]
        left = operand(arguments[0], level - 1 if name in CHAINED else level)
        return f"{left} {name} {operand(arguments[1], level)}"
    if not node.path and len(arguments) == 1:
        if name in ("-", "+"):
            text = operand(arguments[0], SIGNED)
            return f"{name}({text})" if text[:1] in "+-.0123456789" else f"{name}{text}"
        if name == "NOT":
            return f"NOT {operand(arguments[0], 26)}"
        if name.startswith("IS "):
            return f"{operand(arguments[0], 28)} {name}"
        if name == "MODEL":
            return f"MODEL {written(arguments[0])}"
        if name in ("FINAL", "RUNNING"):
            return f"{name} {written(arguments[0])}"
        if name in ("ARRAY QUERY", "MAP QUERY", "MULTISET QUERY"):
            return f"{name.split(' ')[0]}{written(arguments[0])}"
    if name in ("ARRAY", "MAP", "MULTISET") and not node.path:
        return f"{name}[{commas(written(each) for each in arguments)}]"
    if name == "MINUS_DATE" and len(arguments) == 2:
        difference = Call("-", arguments)
        return f"({call_text(difference)}) {dict(node.options)['unit']}"
    if name == "DEFAULT" and not arguments:
        return name
    inner = _special_arguments(node)
    if inner is None:
        inner = commas(written(each) for each in arguments)
    if not arguments and not node.path and name in PARENTHESISLESS:
        return name
    return f"{_function_name(node)}({inside}{inner}{order})"


def _function_name(node: Call) -> str:
    upper = node.name.upper()
    is_plain = PLAIN.fullmatch(node.name) and (upper not in RESERVED or is_function_word(upper))
    name = node.name if is_plain else name_text(node.name)
    return f"{path_text(node.path)}.{name}" if node.path else name


def _special_arguments(node: Call) -> str | None:
    """The arguments of a call with keywords inside; None for a plain call."""
    # The Table API passes the program's function itself; its name precedes the arguments.
    options, upper = {key: value for key, value in node.options if key != "function"}, node.name.upper()
    parts = [written(each) for each in node.arguments]
    if upper in ("JSON_OBJECT", "JSON_OBJECTAGG"):
        pairs = [f"KEY {key} VALUE {value}" for key, value in zip(parts[::2], parts[1::2], strict=True)]
        parts = [commas(pairs)] if pairs else []
        return " ".join([*parts, *_behaviours(options)])
    if not options:
        return None
    if upper == "EXTRACT":
        return f"{options['unit']} FROM {parts[0]}"
    if upper in ("CEIL", "CEILING", "FLOOR"):
        return f"{commas(parts)} TO {options['unit']}"
    if upper in ("TIMESTAMPADD", "TIMESTAMPDIFF"):
        return commas([options["unit"], *parts])
    if upper == "TRIM":
        return f"{options['side']} {' '.join(parts[1:])} FROM {parts[0]}".replace("  ", " ")
    if "charset" in options:
        return f"{parts[0]} USING {name_text(options['charset'])}"
    return " ".join([*([commas(parts)] if parts else []), *_behaviours(options)])


def _behaviours(options: dict[str, Any]) -> list[str]:
    """RETURNING t, WITH … WRAPPER, NULL ON EMPTY, DEFAULT x ON ERROR, ABSENT ON NULL."""
    words = []
    for key, value in options.items():
        if key == "returning":
            words.append(f"RETURNING {written(value)}")
        elif key == "wrapper":
            words.append(f"{'WITHOUT' if value == 'WITHOUT' else f'WITH {value}'} ARRAY WRAPPER")
        else:
            behaviour, default = value if isinstance(value, tuple) else (value, None)
            shown = behaviour if default is None else f"{behaviour} {written(default)}"
            words.append(f"{shown} {key.replace('_', ' ').upper()}")
    return words


@written.register
def _argument(node: Argument) -> str:
    return f"{name_text(node.name)} => {written(node.value)}"


@written.register
def _table_argument(node: TableArgument) -> str:
    relation = written(node.relation)
    text = relation if relation.startswith("(") else f"TABLE {relation}"
    if node.partition_by:
        text += f" PARTITION BY ({commas(written(each) for each in node.partition_by)})"
    if node.order_by:
        text += f" ORDER BY ({commas(written(each) for each in node.order_by)})"
    return text


@written.register
def _descriptor(node: Descriptor) -> str:
    return f"DESCRIPTOR({commas(name_text(each) for each in node.columns)})"


@written.register
def _aggregated(node: Aggregated) -> str:
    order = f" ORDER BY {commas(written(each) for each in node.order_by)}" if node.order_by else ""
    text = call_text(node.call, "DISTINCT " if node.distinct else "", order)
    if node.within_group:
        text += f" WITHIN GROUP (ORDER BY {commas(written(each) for each in node.within_group)})"
    if node.filter is not None:
        text += f" FILTER (WHERE {written(node.filter)})"
    return f"{text} {node.nulls} NULLS" if node.nulls else text


@written.register
def _over(node: Over) -> str:
    window = name_text(node.window) if isinstance(node.window, str) else written(node.window)
    return f"{written(node.call)} OVER {window}"


@written.register
def _window(node: WindowSpec) -> str:
    parts = [name_text(node.base)] if node.base is not None else []
    if node.partition_by:
        parts.append(f"PARTITION BY {commas(written(each) for each in node.partition_by)}")
    if node.order_by:
        parts.append(f"ORDER BY {commas(written(each) for each in node.order_by)}")
    if node.frame is not None:
        parts.append(written(node.frame))
    return f"({' '.join(parts)})"


@written.register
def _frame(node: Frame) -> str:
    return f"{node.unit} BETWEEN {written(node.start)} AND {written(node.end)}"


@written.register
def _bound(node: FrameBound) -> str:
    if node.kind == "CURRENT":
        return "CURRENT ROW"
    return f"{'UNBOUNDED' if node.amount is None else operand(node.amount, RANGED)} {node.kind}"


@written.register
def _order(node: OrderItem) -> str:
    text = written(node.expression) + (" DESC" if node.descending else "")
    if node.nulls_first is None:
        return text
    return f"{text} NULLS {'FIRST' if node.nulls_first else 'LAST'}"
