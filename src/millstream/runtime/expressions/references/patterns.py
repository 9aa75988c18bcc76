"""Regular expressions, LIKE and SIMILAR TO, a value at a time. A pattern that does not compile has no answer: NULL,
and FALSE of REGEXP, as in Flink; only LIKE's ESCAPE and SIMILAR TO refuse one."""

from __future__ import annotations

from collections.abc import Callable

from millstream.runtime.expressions.java_patterns import JavaPattern, PatternProblem, UnsupportedPattern, java_pattern
from millstream.runtime.expressions.java_text import units_of
from millstream.runtime.expressions.kernel import CallContext, ValueProblem, reference
from millstream.runtime.expressions.like_patterns import like_pattern, similar_pattern
from millstream.runtime.expressions.references.null_rules import null_of_null

__all__ = ["compiled_or_none"]


def compiled_or_none(source: str) -> JavaPattern | None:
    """The pattern, or None if it does not compile."""
    try:
        return java_pattern(source)
    except PatternProblem:
        return None
    except UnsupportedPattern as problem:
        raise ValueProblem(str(problem)) from None


@reference("REGEXP")
@null_of_null
def regexp(context: CallContext, text: str, source: str) -> bool:
    """No pattern at all is found nowhere."""
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
    """Where the first match begins, counted from 1 in Java's units; 0: nowhere."""
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
    """What a group of the first match has; NULL if there is no such group."""
    pattern = compiled_or_none(source)
    if pattern is None or not 0 <= group <= pattern.group_count:
        return None
    match = pattern.compiled.search(text)
    return match[group] if match else None


@reference("REGEXP_EXTRACT_ALL")
@null_of_null
def regexp_extract_all(context: CallContext, text: str, source: str, group: int = 1) -> list[str | None] | None:
    """What a group has in each match."""
    pattern = compiled_or_none(source)
    if pattern is None or not 0 <= group <= pattern.group_count:
        return None
    return [match[group] for match in pattern.compiled.finditer(text)]


@reference("REGEXP_REPLACE")
@null_of_null
def regexp_replace(context: CallContext, text: str, source: str, replacement: str) -> str | None:
    """All matches give way to the replacement, taken as it stands: Flink knows no `$1` here."""
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


def _full(compiled: Callable[[str, str], JavaPattern], source: str, escape: str) -> JavaPattern:
    """The Java pattern of a pattern of SQL."""
    try:
        return compiled(source, escape)
    except (PatternProblem, UnsupportedPattern) as problem:
        raise ValueProblem(str(problem)) from None


@reference("STR_TO_MAP")
@null_of_null
def str_to_map(context: CallContext, text: str, pairs: str = ",", values: str = "=") -> dict[str, str | None] | None:
    """Pairs of keys and values; both delimiters are patterns. A later key takes the place of an earlier."""
    if not text:
        return {}
    try:
        between, inside = java_pattern(pairs), java_pattern(values)
    except (PatternProblem, UnsupportedPattern) as problem:
        raise ValueProblem(str(problem)) from None
    found: dict[str, str | None] = {}
    for pair in _split(text, between, 0):
        key, *value = _split(pair, inside, 2)
        found[key] = value[0] if value else None
    return found


def _split(text: str, pattern: JavaPattern, limit: int) -> list[str]:
    """Java's split: no empty part before a match of nothing at the start; without a limit, none at the end."""
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
