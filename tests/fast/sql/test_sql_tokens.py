"""The SQL tokenizer; an unterminated construct is reported with its position."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SqlError
from millstream.sql.splitting import is_complete, statement_spans
from millstream.sql.tokens import TokenKind, tokenised


def values(text: str) -> list[str]:
    return [token.value for token in tokenised(text)[:-1]]


def test_comments_are_dropped_and_hints_are_not() -> None:
    assert values("a -- b\n/* c ; ' */ d /**/ e") == ["a", "d", "e"]
    assert values("t /*+ X */") == ["t", "/*+", "X", "*/"]


def test_a_star_before_a_comment_is_a_star() -> None:
    assert values("SELECT */* all */ FROM t") == ["SELECT", "*", "FROM", "t"]


def test_quotes_are_removed_and_doubled_quotes_unescaped() -> None:
    assert values("'it''s' `a``b` '' N'x' _UTF8'y'") == ["it's", "a`b", "", "x", "y"]


def test_a_quoted_keyword_is_an_identifier() -> None:
    (token, _) = tokenised("`select`")
    assert (token.kind, token.word) == (TokenKind.QUOTED, "")


@pytest.mark.parametrize("text", ["1", "1.5", ".5", "1.", "1e5", "1.5E-3", "007"])
def test_a_number_retains_its_digits(text: str) -> None:
    (token, _) = tokenised(text)
    assert (token.kind, token.value) == (TokenKind.NUMBER, text)


@pytest.mark.parametrize(("text", "column"), [("a 'b", 3), ("a `b", 3), ("a /* b", 3), ("'a' 'b'' c", 5), ('"a"', 1)])
def test_an_unterminated_construct_is_reported_where_it_starts(text: str, column: int) -> None:
    with pytest.raises(SqlError) as problem:
        tokenised(text)
    assert (problem.value.line, problem.value.column) == (1, column)


# The characters that begin, end and escape something, and a few that do not.
TEXTS = st.text(alphabet="ab1é'`\"/*-+;.xUeN&_(\\ \n\t", max_size=40)


@given(TEXTS)
def test_any_text_is_tokenized_or_rejected_with_its_position(text: str) -> None:
    try:
        tokens = tokenised(text)
    except SqlError as problem:
        assert problem.line is not None
        return
    covered = [sign for token in tokens for sign in text[token.start : token.stop]]
    assert len(covered) <= len(text)
    assert all(first.stop <= second.start for first, second in pairwise(tokens))


@given(TEXTS)
def test_every_text_can_be_quoted(text: str) -> None:
    (token, _) = tokenised("'" + text.replace("'", "''") + "'")
    assert token.value == text


def spans(text: str) -> list[str]:
    return [span.text for span in statement_spans(text)]


def test_semicolons_in_texts_names_comments_and_statement_sets_end_no_statement() -> None:
    sets = "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT CASE WHEN b THEN 1 END; INSERT INTO c SELECT 2; END"
    script = f"SELECT ';', `;` /* ; */ -- ;\n;; {sets};\nBEGIN STATEMENT SET; INSERT INTO a SELECT 1; END; SELECT 1"
    first, second, third, last = spans(script)
    assert first == "SELECT ';', `;`"
    assert second == sets
    assert third == "BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END"
    assert last == "SELECT 1"


def test_a_prompt_waits_until_the_statement_ends() -> None:
    for unfinished in (
        "SELECT 1",
        "SELECT ';",
        "SELECT 1; SELECT",
        "/* ;",
        "BEGIN STATEMENT SET; INSERT INTO a SELECT 1;",
    ):
        assert not is_complete(unfinished), unfinished
    for finished in (
        "",
        "SELECT 1;",
        "SELECT 1; -- done",
        "SELEC;",
        'SELECT "a";',
        "BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END;",
    ):
        assert is_complete(finished), finished
