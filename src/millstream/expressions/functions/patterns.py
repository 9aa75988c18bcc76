"""Patterns: LIKE, SIMILAR TO, and Java's regular expressions.

As in Flink, the result for a pattern that does not compile is NULL, or FALSE for REGEXP; LIKE and SIMILAR TO reject it.
"""

from __future__ import annotations

from typing import Any

from millstream.expressions.functions.signatures import STRING, TEXT, WHOLE, optional, scalar
from millstream.expressions.nested_types import ArrayType
from millstream.expressions.types import BooleanType, IntType

__all__: list[str] = []

FAMILY = "patterns"
_TEXT_AND_PATTERN = [TEXT, TEXT]


def _define() -> None:
    doc = "Whether the whole text matches a pattern; % matches any text, _ any character."
    like = [TEXT, TEXT, optional(TEXT)]
    scalar("text LIKE pattern [ESCAPE character]", like, BooleanType(), doc, FAMILY, name="LIKE", method="like")
    doc = "Whether the whole text matches an SQL regular expression with % and _."
    scalar(
        "text SIMILAR TO pattern",
        like,
        BooleanType(),
        doc,
        FAMILY,
        name="SIMILAR TO",
        is_expensive=True,
        method="similar",
    )
    _define_regular_expressions()


def _define_regular_expressions() -> None:
    expensive: dict[str, Any] = {"family": FAMILY, "may_fail": False, "is_expensive": True}
    doc = "Whether a regular expression matches part of the text."
    scalar("REGEXP(text, regex)", _TEXT_AND_PATTERN, BooleanType(), doc, method="regexp", **expensive)
    doc = "The number of non-overlapping matches of a regular expression."
    scalar(
        "REGEXP_COUNT(text, regex)",
        _TEXT_AND_PATTERN,
        IntType(),
        doc,
        nulls="always",
        method="regexp_count",
        **expensive,
    )
    doc = "The position of the first match of a regular expression, from 1; 0 if there is none."
    scalar(
        "REGEXP_INSTR(text, regex)",
        _TEXT_AND_PATTERN,
        IntType(),
        doc,
        nulls="always",
        method="regexp_instr",
        **expensive,
    )
    doc = "The first match of a regular expression."
    scalar(
        "REGEXP_SUBSTR(text, regex)",
        _TEXT_AND_PATTERN,
        STRING,
        doc,
        nulls="always",
        method="regexp_substr",
        **expensive,
    )
    _define_replacements_and_groups(expensive)


def _define_replacements_and_groups(expensive: dict[str, Any]) -> None:
    grouped = [TEXT, TEXT, optional(WHOLE)]
    doc = "The text of a group (0: all) in the first match; NULL if there is no match or no such group."
    scalar(
        "REGEXP_EXTRACT(text, regex [, group])",
        grouped,
        STRING,
        doc,
        nulls="always",
        method="regexp_extract",
        **expensive,
    )
    doc = "The strings of a group (default 1) in all matches."
    texts = ArrayType(STRING)
    scalar(
        "REGEXP_EXTRACT_ALL(text, regex [, group])",
        grouped,
        texts,
        doc,
        nulls="always",
        method="regexp_extract_all",
        **expensive,
    )
    doc = "The text with all matches replaced by a literal text."
    scalar(
        "REGEXP_REPLACE(text, regex, replacement)",
        [TEXT] * 3,
        STRING,
        doc,
        nulls="always",
        method="regexp_replace",
        **expensive,
    )


_define()
