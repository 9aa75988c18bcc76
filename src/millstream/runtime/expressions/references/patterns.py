"""References of regular expressions, LIKE and SIMILAR TO. A pattern that does not compile yields NULL, or FALSE for
REGEXP, as in Flink; only LIKE with ESCAPE and SIMILAR TO raise an error."""

from __future__ import annotations

from collections.abc import Callable

from millstream.runtime.expressions.java_patterns import JavaPattern, PatternError, UnsupportedPattern, java_pattern
from millstream.runtime.expressions.java_text import units_of
from millstream.runtime.expressions.kernel import CallContext, EvaluationError, reference
from millstream.runtime.expressions.like_patterns import like_pattern, similar_pattern
from millstream.runtime.expressions.references.null_rules import null_of_null

__all__ = ["compiled_or_none"]


def compiled_or_none(source: str) -> JavaPattern | None:
    """The compiled pattern; None if Java rejects it."""
    try:
        return java_pattern(source)
    except PatternError:
        return None
    except UnsupportedPattern as problem:
        raise EvaluationError(str(problem)) from None


@reference("REGEXP")
@null_of_null
def regexp(context: CallContext, text: str, source: str) -> bool:
    """REGEXP; the empty pattern never matches."""
    pattern = compiled_or_none(source) if source else None
    return pattern is not None and bool(pattern.compiled.search(text))


@reference("REGEXP_COUNT")
@null_of_null
def regexp_count(context: CallContext, text: str, source: str) -> int | None:
    pattern = compiled_or_none(source)
    return None if pattern is None else sum(1 for _ in pattern.compiled.finditer(text))


@reference("REGEXP_INSTR")
@null_of_null
def regexp_instr(context: CallContext, text: str, source: str) -> int | None:
    """The start of the first match, counted from 1 in UTF-16 units; 0 without a match."""
    pattern = compiled_or_none(source)
    if pattern is None:
        return None
    match = pattern.compiled.search(text)
    return len(units_of(text[: match.start()])) + 1 if match else 0


@reference("REGEXP_SUBSTR")
@null_of_null
def regexp_substr(context: CallContext, text: str, source: str) -> str | None:
    return regexp_extract(context, text, source, 0)


@reference("REGEXP_EXTRACT")
@null_of_null
def regexp_extract(context: CallContext, text: str, source: str, group: int = 0) -> str | None:
    """The substring matched by a group in the first match; NULL if the group does not exist."""
    pattern = compiled_or_none(source)
    if pattern is None or not 0 <= group <= pattern.group_count:
        return None
    match = pattern.compiled.search(text)
    return match[group] if match else None


@reference("REGEXP_EXTRACT_ALL")
@null_of_null
def regexp_extract_all(context: CallContext, text: str, source: str, group: int = 1) -> list[str | None] | None:
    """The substrings matched by a group in all matches."""
    pattern = compiled_or_none(source)
    if pattern is None or not 0 <= group <= pattern.group_count:
        return None
    return [match[group] for match in pattern.compiled.finditer(text)]


@reference("REGEXP_REPLACE")
@null_of_null
def regexp_replace(context: CallContext, text: str, source: str, replacement: str) -> str | None:
    """Replaces all matches by the literal replacement; Flink does not interpret `$1` here."""
    pattern = compiled_or_none(source)
    return None if pattern is None else pattern.compiled.sub(lambda match: replacement, text)


@reference("LIKE")
@null_of_null
def like(context: CallContext, text: str, source: str, escape: str = "") -> bool:
    return bool(_full(like_pattern, source, escape).compiled.search(text))


@reference("SIMILAR TO")
@null_of_null
def similar_to(context: CallContext, text: str, source: str, escape: str = "") -> bool:
    return bool(_full(similar_pattern, source, escape).compiled.search(text))


def _full(translate: Callable[[str, str], JavaPattern], source: str, escape: str) -> JavaPattern:
    """Translates an SQL pattern to a Java pattern."""
    try:
        return translate(source, escape)
    except (PatternError, UnsupportedPattern) as problem:
        raise EvaluationError(str(problem)) from None


@reference("STR_TO_MAP")
@null_of_null
def str_to_map(context: CallContext, text: str, pairs: str = ",", values: str = "=") -> dict[str, str | None] | None:
    """Splits a string into pairs; both delimiters are patterns. A later key replaces an earlier one."""
    if not text:
        return {}
    try:
        between, inside = java_pattern(pairs), java_pattern(values)
    except (PatternError, UnsupportedPattern) as problem:
        raise EvaluationError(str(problem)) from None
    entries: dict[str, str | None] = {}
    for pair in _split(text, between, 0):
        key, *value = _split(pair, inside, 2)
        entries[key] = value[0] if value else None
    return entries


def _split(text: str, pattern: JavaPattern, limit: int) -> list[str]:
    """Java's split: ignores an empty match at the start; without a limit, drops empty parts at the end."""
    parts: list[str] = []
    start = 0
    for match in pattern.compiled.finditer(text):
        if limit and len(parts) == limit - 1:
            break
        if match.end() == 0:
            continue
        parts.append(text[start : match.start()])
        start = match.end()
    parts.append(text[start:])
    while not limit and len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts
