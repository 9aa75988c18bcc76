"""Patterns: LIKE, SIMILAR TO, and Java's regular expressions.

A pattern of REGEXP and its like that does not compile has no answer, as in Flink: NULL, and FALSE of REGEXP. LIKE and
SIMILAR TO refuse one.
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
    doc = "Whether the whole text fits a pattern, in which % is any text and _ any character."
    like = [TEXT, TEXT, optional(TEXT)]
    scalar("text LIKE pattern [ESCAPE character]", like, BooleanType(), doc, FAMILY, name="LIKE", method="like")
    doc = "Whether the whole text fits a pattern of SQL, a regular expression with % and _."
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
    dear: dict[str, Any] = {"family": FAMILY, "may_fail": False, "is_expensive": True}
    doc = "Whether a part of the text fits a regular expression."
    scalar("REGEXP(text, regex)", _TEXT_AND_PATTERN, BooleanType(), doc, method="regexp", **dear)
    doc = "How often a regular expression fits, one match behind the other."
    scalar(
        "REGEXP_COUNT(text, regex)", _TEXT_AND_PATTERN, IntType(), doc, nulls="always", method="regexp_count", **dear
    )
    doc = "Where a regular expression first fits, from 1; 0 if nowhere."
    scalar(
        "REGEXP_INSTR(text, regex)", _TEXT_AND_PATTERN, IntType(), doc, nulls="always", method="regexp_instr", **dear
    )
    doc = "The first part of the text that fits a regular expression."
    scalar("REGEXP_SUBSTR(text, regex)", _TEXT_AND_PATTERN, STRING, doc, nulls="always", method="regexp_substr", **dear)
    grouped = [TEXT, TEXT, optional(WHOLE)]
    doc = "What a group (0: the whole) of the first match has; NULL if there is no match or no such group."
    scalar(
        "REGEXP_EXTRACT(text, regex [, group])", grouped, STRING, doc, nulls="always", method="regexp_extract", **dear
    )
    doc = "What a group (1, if none is given) has in each match."
    texts = ArrayType(STRING)
    scalar(
        "REGEXP_EXTRACT_ALL(text, regex [, group])",
        grouped,
        texts,
        doc,
        nulls="always",
        method="regexp_extract_all",
        **dear,
    )
    doc = "The text with every match replaced by another text, which is taken as it stands."
    scalar(
        "REGEXP_REPLACE(text, regex, replacement)",
        [TEXT] * 3,
        STRING,
        doc,
        nulls="always",
        method="regexp_replace",
        **dear,
    )


_define()
