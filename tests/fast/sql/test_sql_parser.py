"""The SQL parser: operator precedence, statement contents and source positions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.errors import SqlError
from millstream.sql.parser import parse_expression, parse_query, parse_statement, parse_statements, parse_type
from millstream.sql.query_syntax import AliasedRelation, Derived, Join, NamedRelation, Query, Select, SetQuery
from millstream.sql.statement_reader import StatementReader
from millstream.sql.statements import CreateTable, CreateView, Insert, QueryStatement, StatementSet
from millstream.sql.syntax import (
    Aggregated,
    Between,
    Call,
    Case,
    FieldAccess,
    Interval,
    ItemAccess,
    Literal,
    Name,
    Node,
    Over,
    RowValue,
    Span,
    Star,
    TypeName,
)
from millstream.sql.writing import written

STATEMENTS = Path(__file__).parents[2] / "golden" / "sql_statements"


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("a + b * c", "a + (b * c)"),
        ("a - b - c", "(a - b) - c"),
        ("a || b + c", "(a || b) + c"),
        ("-a * b", "(-a) * b"),
        ("NOT a = b AND c", "(NOT (a = b)) AND c"),
        ("a OR b AND c", "a OR (b AND c)"),
        ("a = b IS NULL", "(a = b) IS NULL"),
        ("a + 1 BETWEEN b AND c + 1 AND d", "((a + 1) BETWEEN b AND (c + 1)) AND d"),
        ("a LIKE b = c", "(a LIKE b) = c"),
        ("a IN (1) = b", "(a IN (1)) = b"),
        ("NOT a IS NULL", "NOT (a IS NULL)"),
        ("a < b = c", "(a < b) = c"),
        ("a IS DISTINCT FROM b + 1", "a IS DISTINCT FROM (b + 1)"),
    ],
)
def test_operator_precedence_is_flinks(text: str, grouped: str) -> None:
    assert parse_expression(text) == parse_expression(grouped)


def test_a_negative_number_is_one_literal_so_that_the_smallest_is_expressible() -> None:
    assert parse_expression("-9223372036854775808") == Literal("NUMBER", "-9223372036854775808")
    assert parse_expression("a - 1") == Call("-", (Name(("a",)), Literal("NUMBER", "1")))
    assert parse_expression("-(1)") == Call("-", (Literal("NUMBER", "1"),))


def test_names_retain_their_case_and_lose_their_quotes() -> None:
    assert parse_expression("Cat.`my db`.T.a") == Name(("Cat", "my db", "T", "a"))


def test_fields_and_items_are_postfix_operators() -> None:
    array = Name(("t", "a"))
    assert parse_expression("t.a[1].f") == FieldAccess(ItemAccess(array, Literal("NUMBER", "1")), "f")
    assert parse_expression("(t).a") == FieldAccess(Name(("t",)), "a")
    assert parse_expression("f(x).*") == FieldAccess(Call("f", (Name(("x",)),)), "*")


def test_several_values_of_one_when_are_several_whens() -> None:
    assert parse_expression("CASE x WHEN 1, 2 THEN 'a' END") == parse_expression(
        "CASE x WHEN 1 THEN 'a' WHEN 2 THEN 'a' END"
    )
    assert isinstance(parse_expression("CASE WHEN a THEN 1 END"), Case)


def test_aggregate_only_clauses_wrap_the_call() -> None:
    plain = parse_expression("COUNT(*)")
    assert plain == Call("COUNT", (Star(),))
    filtered = parse_expression("COUNT(DISTINCT a) FILTER (WHERE b)")
    assert filtered == Aggregated(Call("COUNT", (Name(("a",)),)), True, Name(("b",)))
    over = parse_expression("COUNT(*) OVER w")
    assert over == Over(Aggregated(Call("COUNT", (Star(),))), "w")


def test_keywords_inside_a_call_become_options() -> None:
    assert parse_expression("EXTRACT(DAYS FROM a)") == Call("EXTRACT", (Name(("a",)),), (("unit", "DAY"),))
    trimmed = parse_expression("TRIM(LEADING 'x' FROM a)")
    assert trimmed == Call("TRIM", (Name(("a",)), Literal("TEXT", "x")), (("side", "LEADING"),))
    assert parse_expression("POSITION('a' IN b)") == Call("POSITION", (Literal("TEXT", "a"), Name(("b",))))


def test_literals_of_all_kinds() -> None:
    assert parse_expression("x'CAFE'") == Literal("BYTES", b"\xca\xfe")
    assert parse_expression("U&'\\00e9' ") == Literal("TEXT", "é")
    assert parse_expression("U&'!00e9!!' UESCAPE '!'") == Literal("TEXT", "é!")
    assert parse_expression("'a'\n'b'") == Literal("TEXT", "ab")
    assert parse_expression("INTERVAL -'1 02' DAYS TO HOUR") == Interval("1 02", "DAY", "HOUR", negative=True)
    moment = "2026-11-16 00:00:00"
    assert parse_expression(f"TIMESTAMP WITH LOCAL TIME ZONE '{moment}'") == Literal("TIMESTAMP_LTZ", moment)


def test_spellings_of_one_type_are_one_type() -> None:
    assert parse_type("INTEGER") == parse_type("INT NULL") == TypeName("INT")
    assert parse_type("TIMESTAMP(3) WITH LOCAL TIME ZONE") == parse_type("TIMESTAMP_LTZ(3)")
    assert parse_type("INT NOT NULL ARRAY") == parse_type("ARRAY<INT NOT NULL>")
    assert parse_type("ROW(a INT)") == parse_type("ROW<a INT>")


def test_intersect_binds_tighter_than_union() -> None:
    body = parse_query("SELECT 1 UNION SELECT 2 INTERSECT SELECT 3").body
    assert isinstance(body, SetQuery)
    assert body.kind == "UNION"
    assert isinstance(body.right.body, SetQuery)
    assert body.right.body.kind == "INTERSECT"


def test_double_parentheses_open_a_query_or_a_join() -> None:
    union = parse_query("SELECT * FROM ((SELECT 1) UNION (SELECT 2)) AS u").body
    assert isinstance(union, Select)
    assert isinstance(union.source, AliasedRelation)
    assert isinstance(union.source.relation, Derived)
    join = parse_query("SELECT * FROM ((SELECT 1 AS x) AS p JOIN q ON p.x = q.x)").body
    assert isinstance(join, Select)
    assert isinstance(join.source, Join)


def test_a_parenthesised_query_with_its_own_order_stays_a_subquery() -> None:
    query = parse_query("(SELECT a FROM t LIMIT 5) LIMIT 3")
    assert isinstance(query.body, Select)
    assert isinstance(query.body.source, Derived)
    assert parse_query("((SELECT 1))") == parse_query("SELECT 1")


def test_a_time_travel_clause_and_hints_belong_to_the_table_before_its_alias() -> None:
    body = parse_query("SELECT * FROM t /*+ OPTIONS('a'='b') */ FOR SYSTEM_TIME AS OF x.ts AS r").body
    assert isinstance(body, Select)
    relation = body.source
    assert isinstance(relation, AliasedRelation)
    assert isinstance(relation.relation, NamedRelation)
    assert relation.relation.hints[0].arguments == (("a", "b"),)
    assert relation.relation.system_time is not None


def test_columns_watermark_and_key_of_a_table_are_separate() -> None:
    table = parse_statement(
        "CREATE TABLE t (id INT NOT NULL, ts TIMESTAMP(3) METADATA FROM 'time' VIRTUAL, c AS id + 1, "
        "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'datagen')"
    )
    assert isinstance(table, CreateTable)
    assert [column.name for column in table.columns] == ["id", "ts", "c"]
    assert table.columns[0].type == TypeName("INT", nullable=False)
    assert (table.columns[1].metadata, table.columns[1].is_virtual) == ("time", True)
    assert table.columns[2].expression == parse_expression("id + 1")
    assert table.watermarks[0].column == ("ts",)
    assert table.keys[0].columns == ("id",)
    assert table.options == (("connector", "datagen"),)


def test_a_view_stores_the_text_of_its_query() -> None:
    view = parse_statement("CREATE VIEW v AS SELECT  a -- all\nFROM t;")
    assert isinstance(view, CreateView)
    assert view.text == "SELECT  a -- all\nFROM t"


def test_both_notations_of_a_statement_set_are_equal() -> None:
    inner = "INSERT INTO a SELECT 1; INSERT INTO b SELECT CASE WHEN TRUE THEN 2 END;"
    assert parse_statement(f"EXECUTE STATEMENT SET BEGIN {inner} END") == parse_statement(
        f"BEGIN STATEMENT SET; {inner} END;"
    )


def test_a_script_is_parsed_statement_by_statement_with_positions_in_the_script() -> None:
    first, second = parse_statements(";;SELECT 1;\n\n  SELECT 2")
    assert isinstance(second, QueryStatement)
    assert second.span is not None
    assert (first.span, second.span) == (Span(2, 10, first.span.source), second.span)  # type: ignore[union-attr]
    assert (second.span.line, second.span.column, second.span.text) == (3, 3, "SELECT 2")


def nodes(value: object) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
        for field in dataclasses.fields(value):
            yield from nodes(getattr(value, field.name))
    elif isinstance(value, tuple):
        for each in value:
            yield from nodes(each)


def test_the_text_at_an_expressions_position_parses_to_that_expression() -> None:
    text = "SELECT (a + b) * c, f(x).y, CASE WHEN a THEN 1 END, SUM(q) OVER (ORDER BY z), d BETWEEN 1 AND 2 FROM t"
    body = parse_query(text).body
    assert isinstance(body, Select)
    checked = [node for item in body.items for node in nodes(item) if isinstance(node, Call | Case | Between | Over)]
    assert len(checked) >= 6
    for node in checked:
        assert node.span is not None
        assert parse_expression(node.span.text) == node


def test_every_parsed_statement_query_and_expression_has_its_position() -> None:
    missing = {
        type(node).__name__
        for statement in parse_statements((STATEMENTS / "nexmark" / "q5.sql").read_text())
        for node in nodes(statement)
        if node.span is None
    }
    assert not missing


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "(" * 3_000,
        "SELECT " + "(" * 3_000 + "1" + ")" * 3_000,
        "SELECT " + "f(a AND b = c + " * 2_000,
        "SELECT " + "CASE WHEN a THEN " * 2_000,
        "SELECT * FROM " + "(SELECT * FROM " * 2_000,
        "SELECT * FROM " + "(" * 2_000,
        "SELECT " + "NOT " * 3_000 + "a",
        "SELECT a" + "[1]" * 3_000,
        "SELECT " + "a + " * 3_000 + "a",
        "SELECT * FROM a" + " JOIN b ON TRUE" * 3_000,
        "SELECT a FROM t" + " EXCEPT SELECT b FROM u" * 3_000,
        "CREATE TABLE t (a " + "ARRAY<" * 3_000,
        "SELECT * FROM t MATCH_RECOGNIZE (PATTERN (" + "(" * 3_000,
    ],
    ids=lambda text: text[:24],
)
def test_deep_nesting_is_rejected_with_a_message(text: str) -> None:
    with pytest.raises(SqlError, match=r"nested too deeply|chain of more than|ends too early"):
        parse_statement(text)


@pytest.mark.parametrize("word", ["OR", "AND", "||"])
def test_a_long_operator_chain_is_a_shallow_tree(word: str) -> None:
    def depth(node: object) -> int:
        return 1 + max(map(depth, node.arguments)) if isinstance(node, Call) else 0

    assert depth(parse_expression(f" {word} ".join(f"a{n}" for n in range(2_000)))) <= 13


def test_many_unions_are_a_shallow_tree() -> None:
    def depth(query: Query) -> int:
        body = query.body
        return 1 + max(depth(body.left), depth(body.right)) if isinstance(body, SetQuery) else 0

    assert depth(parse_query(" UNION ALL ".join(["SELECT 1"] * 1_000))) <= 10


def test_a_row_of_values_may_contain_a_row() -> None:
    statement = parse_statement("INSERT INTO t VALUES (ROW(1, 2)), (3)")
    assert isinstance(statement, Insert)
    rows = statement.query.body.rows  # type: ignore[attr-defined]
    assert rows == ((RowValue((Literal("NUMBER", "1"), Literal("NUMBER", "2"))),), (Literal("NUMBER", "3"),))


def test_parser_mixins_share_no_method_name_by_accident() -> None:
    meant = {"expression", "query", "continued_query", "match_recognize", "special"}
    seen: dict[str, str] = {}
    for reader in reversed(StatementReader.__mro__[:-1]):
        for name in vars(reader):
            if not name.startswith("__"):
                assert name not in seen or name in meant, f"{name} of {seen[name]} is hidden by {reader.__name__}"
                seen[name] = reader.__name__


def test_every_valid_statement_survives_printing_and_parsing() -> None:
    scripts = [STATEMENTS / "right.sql", *sorted((STATEMENTS / "nexmark").glob("*.sql"))]
    statements = [each for script in scripts for each in parse_statements(script.read_text())]
    assert len(statements) > 300
    for statement in statements:
        assert parse_statement(written(statement)) == statement


def test_a_statement_set_is_parsed_as_its_inserts() -> None:
    statement = parse_statement("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END")
    assert isinstance(statement, StatementSet)
    assert [insert.table for insert in statement.statements] == [("a",), ("b",)]
