"""Completions of the SQL client at the cursor, in unfinished statements."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.sql_client.client import SqlClient, Terminal
from millstream.cli.sql_client.completion import KnownNames, suggestions

NAMES = KnownNames(
    {
        "bid": ["auction", "price", "select"],
        "bidder": ["id", "name"],
        "seller": ["id", "auction_count"],
        "my table": ["a"],
    },
    {
        "PRINTF": "PRINTF(format, …)",
        "POSITION": "POSITION(part IN text)",
        "CURRENT_DATE": "CURRENT_DATE",
        "ARRAY": "ARRAY[value, …]",
        "IS NULL": "value IS NULL",
        "minePower": "minePower(…)",
    },
    ["SELECT", "FROM", "PRIMARY", "CURRENT_DATE", "IS"],
)


def completed(text: str) -> list[str]:
    """The completions at the sign | in a text."""
    before, _, after = text.partition("|")
    return [each.text for each in suggestions(before, NAMES, after)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM b|", ["bid", "bidder"]),
        ("select * from my|", ["`my table`"]),
        ("INSERT INTO |", ["bid", "bidder", "`my table`", "seller"]),
        ("SELECT * FROM bid, s|", ["seller"]),
        ("SELECT * FROM bid JOIN se|", ["seller"]),
        ("SEL|", ["SELECT"]),
        ("SELECT 'pr|", []),
        ("SELECT 1 /* pr|", []),
        ("|", []),
        ("SELECT 1 |", []),
    ],
)
def test_table_names_are_suggested_where_tables_are_expected(text: str, expected: list[str]) -> None:
    assert completed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT pr| FROM bid", ["price", "PRINTF(", "primary"]),
        ("SELECT `sel| FROM bid", ["`select`", "`seller`"]),
        ("SELECT `sel|ect` FROM bid", ["`select`", "`seller`"]),
        ("SELECT | FROM bid", ["auction", "price", "`select`"]),
        ("SELECT auction, | FROM bid", ["auction", "price", "`select`"]),
        ("SELECT au|ction FROM bid", ["auction"]),
        ("SELECT `a`, pr|, `b` FROM bid", ["price", "PRINTF(", "primary"]),
        ("SELECT x FROM bid WHERE price > 1 AND |", ["auction", "price", "`select`"]),
        ("SELECT SUM(pr| FROM bid", ["price", "PRINTF(", "primary"]),
        ("SELECT na| FROM bid, bidder", ["name"]),
        ("SELECT 1 FROM seller; SELECT auc| FROM bid; SELECT 2 FROM bidder", ["auction"]),
        ("SELECT auc| FROM default_database.bid", ["auction"]),
        ("SELECT auc| FROM bid UNION ALL SELECT 1 FROM seller", ["auction"]),
        (
            "SELECT wind| FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(at), INTERVAL '1' DAY))",
            ["window_start", "window_end", "window_time"],
        ),
        ("SELECT auc| FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(at), INTERVAL '1' DAY))", ["auction"]),
        ("SELECT d| FROM (SELECT price * 2 AS doubled FROM bid)", ["doubled"]),
        ("SELECT auc| FROM (SELECT * FROM bid)", ["auction"]),
        ("SELECT auc| FROM (SELECT b.* FROM bid AS b, seller)", ["auction"]),
        ("SELECT * FROM seller WHERE id IN (SELECT auction| FROM bid)", ["auction_count"]),
        ("WITH few AS (SELECT price AS low FROM bid) SELECT l| FROM few", ["low"]),
        ("WITH few (low) AS (SELECT price FROM bid) SELECT few.| FROM few", ["low"]),
        ("WITH few AS (SELECT price FROM bid) SELECT * FROM f|", ["few"]),
        ("SELECT u| FROM UNNEST(ARRAY[1]) AS t (unit)", ["unit"]),
    ],
)
def test_suggested_columns_are_those_of_the_tables_in_scope(text: str, expected: list[str]) -> None:
    assert completed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT bid.|", ["auction", "price", "`select`"]),
        ("SELECT b.a| FROM bid AS b", ["auction"]),
        ("SELECT b.| FROM bid b WHERE b.price > 1", ["auction", "price", "`select`"]),
        ("SELECT x FROM bid b WHERE b.p|", ["price"]),
        ("SELECT s.| FROM bid AS b JOIN seller AS s ON b.auction = s.id", ["id", "auction_count"]),
        ("SELECT * FROM bid AS b LEFT JOIN seller AS s ON s.|", ["id", "auction_count"]),
        ("SELECT r.| FROM bid b JOIN seller FOR SYSTEM_TIME AS OF b.ordered AS r ON TRUE", ["id", "auction_count"]),
        ("SELECT h.| FROM bid /*+ OPTIONS('a' = 'b') */ AS h", ["auction", "price", "`select`"]),
        ("SELECT q.| FROM (SELECT name FROM bidder) q", ["name"]),
        ("SELECT `my table`.|", ["a"]),
        ("SELECT sel| FROM bid AS seller_bids", ["`select`", "seller_bids", "seller", "select"]),
    ],
)
def test_an_alias_resolves_to_its_table(text: str, expected: list[str]) -> None:
    assert completed(text) == expected


def test_an_ambiguous_column_is_qualified_with_its_table() -> None:
    assert completed("SELECT i| FROM bidder AS b JOIN seller AS s ON TRUE") == ["b.id", "s.id", "is"]
    assert completed("SELECT * FROM bidder JOIN seller ON i|") == ["bidder.id", "seller.id", "is"]


def test_without_a_from_clause_columns_of_all_tables_are_suggested_mentioned_tables_first() -> None:
    assert completed("SELECT a|") == ["auction", "auction_count", "ARRAY["]  # `a` is written already
    first = suggestions("SELECT i", NAMES)[0]
    assert (first.text, first.about) == ("id", "column of bidder, seller")
    assert completed("SELECT auc|") == ["auction", "auction_count"]
    assert completed("INSERT INTO seller SELECT auc|") == ["auction_count", "auction"]
    assert completed("SELECT |")[:3] == ["auction", "price", "`select`"]


def test_functions_are_completed_and_shown_with_their_signature() -> None:
    (print_,) = suggestions("SELECT prin", NAMES)
    assert (print_.text, print_.about) == ("PRINTF(", "PRINTF(format, …)")
    assert completed("SELECT current_d|") == ["CURRENT_DATE", "current_date"]
    assert completed("SELECT arr|") == ["ARRAY["]
    assert completed("SELECT mine|") == ["minePower("]
    assert completed("SELECT 1 is|") == ["is"]  # IS NULL is not written as a function


def test_a_session_knows_the_signatures_of_its_functions() -> None:
    client = SqlClient(Terminal(io.StringIO()), {})
    client.run_statement("CREATE TABLE sales (price INT, sold AS price > 0) WITH ('connector' = 'datagen')")
    client.run_statement("CREATE TEMPORARY VIEW dear AS SELECT price AS high FROM sales")
    names = client.names()
    assert (names.tables["sales"], names.tables["dear"]) == (["price", "sold"], ["high"])
    (completion,) = [each for each in suggestions("SELECT LISTA", names) if each.kind == "function"]
    assert (completion.text, completion.about) == ("LISTAGG(", "LISTAGG(text [, separator])")


@given(st.text(max_size=30), st.text(max_size=20))
def test_any_text_can_be_completed(text: str, rest: str) -> None:
    suggestions(text, NAMES, rest)


_STATEMENT = "WITH b AS ( SELECT * , b . bid FROM bid /*+ x */ AS b JOIN TABLE ( TUMBLE ( TABLE bid ) ) FOR OF b UNION"
_PIECES = [f"{piece} " for piece in dict.fromkeys(_STATEMENT.split(" "))]


@given(st.lists(st.sampled_from(_PIECES), max_size=25), st.lists(st.sampled_from(_PIECES), max_size=25))
def test_any_prefix_of_a_statement_can_be_completed(before: list[str], after: list[str]) -> None:
    suggestions("".join(before), NAMES, "".join(after))


def test_unclosed_parentheses_are_followed_to_any_realistic_depth() -> None:
    assert suggestions("SELECT " + "(" * 5_000 + "pri", NAMES, ")" * 5_000 + " FROM bid")
