"""Queries and relations as text, added to `written`."""

from __future__ import annotations

from typing import Any

from millstream.sql.query_syntax import (
    AliasedRelation,
    Derived,
    GroupingSets,
    Hint,
    Join,
    LateralTable,
    Limit,
    Match,
    NamedRelation,
    NamedWindow,
    Query,
    Select,
    SelectItem,
    SetQuery,
    TableFunctionCall,
    Unnest,
    Values,
    With,
)
from millstream.sql.syntax import Expression
from millstream.sql.writing_expressions import commas, name_text, path_text, text_literal, written

__all__ = ["hints_text"]


@written.register
def _query(node: Query) -> str:
    parts = [f"WITH {commas(written(each) for each in node.ctes)}"] if node.ctes else []
    parts.append(written(node.body))
    if node.order_by:
        parts.append(f"ORDER BY {commas(written(each) for each in node.order_by)}")
    if node.limit is not None:
        parts.append(written(node.limit))
    return " ".join(parts)


@written.register
def _with(node: With) -> str:
    columns = f" ({commas(map(name_text, node.columns))})" if node.columns else ""
    return f"{name_text(node.name)}{columns} AS ({written(node.query)})"


@written.register
def _limit(node: Limit) -> str:
    count = "" if node.count is None else f"LIMIT {written(node.count)}"
    offset = "" if node.offset is None else f"OFFSET {written(node.offset)}"
    return f"{count} {offset}".strip() or "LIMIT ALL"


@written.register
def _set_query(node: SetQuery) -> str:
    left, right = _term(node.left, node.kind, is_right=False), _term(node.right, node.kind, is_right=True)
    return f"{left} {node.kind}{' ALL' if node.all else ''} {right}"


def _term(query: Query, kind: str, *, is_right: bool) -> str:
    is_plain = not (query.ctes or query.order_by or query.limit)
    body = query.body
    if is_plain and (
        not isinstance(body, SetQuery) or (not is_right and (kind != "INTERSECT" or body.kind == "INTERSECT"))
    ):
        return written(query)
    return f"({written(query)})"


@written.register
def _values(node: Values) -> str:
    return f"VALUES {commas(f'({commas(written(each) for each in row)})' for row in node.rows)}"


@written.register
def _select(node: Select) -> str:
    parts = ["SELECT"]
    if node.hints:
        parts.append(hints_text(node.hints))
    if node.distinct:
        parts.append("DISTINCT")
    parts.append(commas(written(each) for each in node.items))
    if node.source is not None:
        parts.append(f"FROM {written(node.source)}")
    if node.where is not None:
        parts.append(f"WHERE {written(node.where)}")
    if node.group_by is not None:
        parts.append(f"GROUP BY {commas(written(each) for each in node.group_by) or '()'}")
    if node.having is not None:
        parts.append(f"HAVING {written(node.having)}")
    if node.windows:
        parts.append(f"WINDOW {commas(written(each) for each in node.windows)}")
    if node.qualify is not None:
        parts.append(f"QUALIFY {written(node.qualify)}")
    return " ".join(parts)


@written.register
def _item(node: SelectItem) -> str:
    return written(node.expression) + ("" if node.alias is None else f" AS {name_text(node.alias)}")


@written.register
def _grouping_sets(node: GroupingSets) -> str:
    return f"{node.kind} ({commas(_grouping_set(each) for each in node.sets)})"


def _grouping_set(columns: tuple[Expression, ...]) -> str:
    if len(columns) == 1:
        return written(columns[0])
    return f"({commas(written(each) for each in columns)})"


@written.register
def _named_window(node: NamedWindow) -> str:
    return f"{name_text(node.name)} AS {written(node.window)}"


# --- relations --------------------------------------------------------------------------------------------------------


def hints_text(hints: tuple[Hint, ...]) -> str:
    """/*+ NAME('key' = 'value') */."""
    return f"/*+ {commas(written(each) for each in hints)} */"


@written.register
def _hint(node: Hint) -> str:
    arguments = [
        text_literal(value) if key is None else f"{text_literal(key)} = {text_literal(value)}"
        for key, value in node.arguments
    ]
    return f"{node.name}({commas(arguments)})" if arguments else node.name


@written.register
def _named(node: NamedRelation) -> str:
    text = path_text(node.parts)
    if node.hints:
        text += f" {hints_text(node.hints)}"
    return text if node.system_time is None else f"{text} FOR SYSTEM_TIME AS OF {written(node.system_time.moment)}"


@written.register
def _aliased(node: AliasedRelation) -> str:
    columns = f" ({commas(map(name_text, node.columns))})" if node.columns else ""
    relation = f"({written(node.relation)})" if isinstance(node.relation, Join) else written(node.relation)
    return f"{relation} AS {name_text(node.alias)}{columns}"


@written.register
def _derived(node: Derived) -> str:
    return f"{'LATERAL ' if node.lateral else ''}({written(node.query)})"


@written.register
def _table_function(node: TableFunctionCall) -> str:
    return f"TABLE({written(node.call)})"


@written.register
def _lateral(node: LateralTable) -> str:
    return f"LATERAL TABLE({written(node.call)})"


@written.register
def _unnest(node: Unnest) -> str:
    return f"UNNEST({written(node.operand)}){' WITH ORDINALITY' if node.with_ordinality else ''}"


@written.register
def _join(node: Join) -> str:
    right = f"({written(node.right)})" if isinstance(node.right, Join) else written(node.right)
    words = [written(node.left)]
    if node.natural:
        words.append("NATURAL")
    words.append(f"{node.kind} JOIN {right}")
    if node.condition is not None:
        words.append(f"ON {written(node.condition)}")
    if node.using:
        words.append(f"USING ({commas(map(name_text, node.using))})")
    return " ".join(words)


# --- MATCH_RECOGNIZE --------------------------------------------------------------------------------------------------


@written.register
def _match(node: Match) -> str:
    parts = []
    if node.partition_by:
        parts.append(f"PARTITION BY {commas(written(each) for each in node.partition_by)}")
    if node.order_by:
        parts.append(f"ORDER BY {commas(written(each) for each in node.order_by)}")
    if node.measures:
        parts.append(f"MEASURES {commas(written(each) for each in node.measures)}")
    rows, _, more = node.rows_per_match.partition(" ")
    parts.append(f"{rows} {'ROW' if rows == 'ONE' else 'ROWS'} PER MATCH {more}".rstrip())
    how, variable = node.after_match
    parts.append(f"AFTER MATCH SKIP {how}{'' if variable is None else f' {name_text(variable)}'}")
    parts.append(f"PATTERN ({_pattern(node.pattern)})")
    if node.within is not None:
        parts.append(f"WITHIN {written(node.within)}")
    if node.subsets:
        subsets = [f"{name_text(name)} = ({commas(map(name_text, members))})" for name, members in node.subsets]
        parts.append(f"SUBSET {commas(subsets)}")
    defines = [f"{name_text(name)} AS {written(condition)}" for name, condition in node.defines]
    parts.append(f"DEFINE {commas(defines)}")
    return f"{written(node.relation)} MATCH_RECOGNIZE ({' '.join(parts)})"


def _pattern(pattern: Any) -> str:
    kind, *inner = pattern
    if kind == "variable":
        return name_text(inner[0])
    if kind == "sequence":
        return " ".join(_part(each, "alternation", "sequence") for each in inner[0])
    if kind == "alternation":
        return " | ".join(_part(each, "alternation") for each in inner[0])
    if kind == "repeat":
        return _repeated(*inner)
    if kind == "exclude":
        return f"{{- {_pattern(inner[0])} -}}"
    if kind == "permute":
        return f"PERMUTE({commas(_pattern(each) for each in inner[0])})"
    return {"start": "^", "end": "$", "empty": "()"}[kind]


def _repeated(inner: Any, least: int, most: int | None, greedy: bool) -> str:
    signs = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    times = f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
    text = _part(inner, "alternation", "sequence", "repeat")
    return f"{text}{signs.get((least, most), times)}{'' if greedy else '?'}"


def _part(pattern: Any, *kinds: str) -> str:
    return f"({_pattern(pattern)})" if pattern[0] in kinds else _pattern(pattern)
