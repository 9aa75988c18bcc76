"""Pattern kernels: RE2 where it is exact for the strings of the batch, otherwise Python's `re` for each value.

The choice is made once per batch from the bytes of the column: RE2's `^` and `$` are exact without line terminators,
`\\b` for ASCII. The choice does not affect the next batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.runtime.expressions.java_patterns import JavaPattern, PatternError, UnsupportedPattern
from millstream.runtime.expressions.kernel import REFERENCES, CallContext, EvaluationError, Value, kernel
from millstream.runtime.expressions.kernels.reference_kernels import register_by_value, run_by_value
from millstream.runtime.expressions.like_patterns import like_parts, like_pattern, similar_pattern
from millstream.runtime.expressions.references import patterns

__all__ = ["re2_text"]

register_by_value("REGEXP_EXTRACT_ALL", "STR_TO_MAP")
_LINE_ENDS = re.compile(rb"[\n\r]|\xc2\x85|\xe2\x80[\xa8\xa9]")


def by_reference(context: CallContext, *arguments: Value) -> Value:
    """Runs the reference row by row."""
    return run_by_value(context, REFERENCES[context.call.function], *arguments)


def re2_text(pattern: JavaPattern, text: pa.Array, group: int | None = None) -> str | None:
    """The pattern for RE2 if it is exact for these strings; None: use Python's `re`."""
    source = pattern.for_re2(group)
    if source is None or not (pattern.needs_plain_lines or pattern.needs_ascii):
        return source
    content = _bytes_of(text)
    if pattern.needs_plain_lines and _LINE_ENDS.search(content):
        return None
    return None if pattern.needs_ascii and not content.isascii() else source


def _by_re2(run: Callable[[], Value], context: CallContext, *arguments: Value) -> Value:
    """Runs RE2; patterns that exceed its limits use Python's `re`."""
    try:
        return run()
    except pa.ArrowInvalid:
        return by_reference(context, *arguments)


def _bytes_of(text: pa.Array) -> bytes:
    """The bytes of all strings of a column, concatenated."""
    _, offsets, data = text.buffers()
    if data is None or not len(text):
        return b""
    places = np.frombuffer(offsets, np.int32)
    start, stop = int(places[text.offset]), int(places[text.offset + len(text)])
    return data.slice(start, stop - start).to_pybytes()  # type: ignore[no-any-return]


def _constant_pattern(source: Value, text: Value) -> JavaPattern | None:
    """The constant pattern of a column; None if it is not constant or not supported.

    NULL rows need no pattern, so the reference decides whether an unsupported pattern is an error.
    """
    if not isinstance(source, pa.Scalar) or not source.is_valid or isinstance(text, pa.Scalar):
        return None
    try:
        return patterns.compiled_or_none(source.as_py())
    except EvaluationError:
        return None


@kernel("REGEXP")
def regexp(context: CallContext, text: Value, source: Value) -> Value:
    pattern = _constant_pattern(source, text)
    for_re2 = re2_text(pattern, text) if pattern is not None and pattern.source else None
    if for_re2 is None:
        return by_reference(context, text, source)
    return _by_re2(lambda: pc.match_substring_regex(text, for_re2), context, text, source)


@kernel("REGEXP_COUNT")
def regexp_count(context: CallContext, text: Value, source: Value) -> Value:
    pattern = _constant_pattern(source, text)
    for_re2 = re2_text(pattern, text) if pattern is not None and not pattern.may_be_empty else None
    if for_re2 is None:
        return by_reference(context, text, source)
    return _by_re2(lambda: pc.count_substring_regex(text, for_re2).cast(pa.int32()), context, text, source)


@kernel("REGEXP_INSTR")
def regexp_instr(context: CallContext, text: Value, source: Value) -> Value:
    """Uses RE2 only for ASCII strings, because it counts bytes."""
    pattern = _constant_pattern(source, text)
    for_re2 = re2_text(pattern, text) if pattern is not None else None
    if for_re2 is None or not _bytes_of(text).isascii():
        return by_reference(context, text, source)
    return _by_re2(lambda: pc.add(pc.find_substring_regex(text, for_re2), 1).cast(pa.int32()), context, text, source)


@kernel("REGEXP_SUBSTR")
def regexp_substr(context: CallContext, text: Value, source: Value) -> Value:
    pattern = _constant_pattern(source, text)
    matches = _extract(pattern, text, 0) if pattern is not None else None
    return by_reference(context, text, source) if matches is None else matches


@kernel("REGEXP_EXTRACT")
def regexp_extract(context: CallContext, text: Value, source: Value, group: Value | None = None) -> Value:
    pattern = _constant_pattern(source, text)
    number = 0 if group is None else group.as_py() if isinstance(group, pa.Scalar) else None
    matches = _extract(pattern, text, number) if pattern is not None and number is not None else None
    if matches is not None:
        return matches
    return by_reference(context, text, source, *([] if group is None else [group]))


def _extract(pattern: JavaPattern, text: pa.Array, group: int) -> pa.Array | None:
    """The substring matched by a group in the first match, by RE2; None if RE2 does not support the pattern."""
    if not 0 <= group <= pattern.group_count:
        return None
    for_re2 = re2_text(pattern, text, group)
    if for_re2 is None:
        return None
    try:
        return pc.struct_field(pc.extract_regex(text, for_re2), [0])
    except pa.ArrowInvalid:  # beyond RE2's limits
        return None


@kernel("REGEXP_REPLACE")
def regexp_replace(context: CallContext, text: Value, source: Value, replacement: Value) -> Value:
    pattern = _constant_pattern(source, text)
    new = replacement.as_py() if isinstance(replacement, pa.Scalar) else None
    usable = pattern is not None and new is not None and not pattern.may_be_empty
    for_re2 = re2_text(pattern, text) if pattern is not None and usable else None
    if for_re2 is None or new is None:
        return by_reference(context, text, source, replacement)
    quoted = new.replace("\\", "\\\\")
    return _by_re2(lambda: pc.replace_substring_regex(text, for_re2, quoted), context, text, source, replacement)


@kernel("LIKE")
def like(context: CallContext, text: Value, source: Value, escape: Value | None = None) -> Value:
    known = escape is None or (isinstance(escape, pa.Scalar) and escape.is_valid)
    rest = [] if escape is None else [escape]
    if not isinstance(source, pa.Scalar) or not source.is_valid or isinstance(text, pa.Scalar) or not known:
        return by_reference(context, text, source, *rest)
    pattern, sign = source.as_py(), "" if escape is None else escape.as_py()
    try:
        parts = like_parts(pattern, sign)
        simple = _simply_like(text, parts)
        if simple is not None:
            return simple
        for_re2 = re2_text(like_pattern(pattern, sign), text)
    except (PatternError, UnsupportedPattern):
        for_re2 = None
    if for_re2 is None:
        return by_reference(context, text, source, *rest)
    return _by_re2(lambda: pc.match_substring_regex(text, for_re2), context, text, source, *rest)


def _simply_like(text: pa.Array, parts: tuple[str, ...]) -> pa.Array | None:
    """Evaluates patterns that need no regular expression: abc, abc%, %abc, %abc%."""
    shape = "".join(part[0] for part in parts)
    words = [part[1:] for part in parts if part[0] == "="]
    match shape:
        case "" | "=":
            return pc.equal(text, words[0] if words else "")
        case "%":
            return pc.if_else(pc.is_valid(text), True, pa.scalar(None, pa.bool_()))
        case "=%":
            return pc.starts_with(text, words[0])
        case "%=":
            return pc.ends_with(text, words[0])
        case "%=%":
            return pc.match_substring(text, words[0])
    return None


@kernel("SIMILAR TO")
def similar_to(context: CallContext, text: Value, source: Value, escape: Value | None = None) -> Value:
    known = escape is None or (isinstance(escape, pa.Scalar) and escape.is_valid)
    rest = [] if escape is None else [escape]
    if not isinstance(source, pa.Scalar) or not source.is_valid or isinstance(text, pa.Scalar) or not known:
        return by_reference(context, text, source, *rest)
    try:
        for_re2 = re2_text(similar_pattern(source.as_py(), "" if escape is None else escape.as_py()), text)
    except (PatternError, UnsupportedPattern):
        for_re2 = None
    if for_re2 is None:
        return by_reference(context, text, source, *rest)
    return _by_re2(lambda: pc.match_substring_regex(text, for_re2), context, text, source, *rest)
