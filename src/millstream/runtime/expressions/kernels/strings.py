"""String kernels: Arrow's where they agree with Flink, otherwise the reference for each value.

Arrow counts characters as Flink does (code points), but does not follow Java's rules for cases, positions or padding.
The kernels below use Arrow for ASCII or constant arguments, and the reference for the remaining rows.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.runtime.expressions.kernel import REFERENCES, CallContext, Value, kernel
from millstream.runtime.expressions.kernels.reference_kernels import (
    column_of,
    register_by_value,
    run_by_value,
    with_reference_rows,
)
from millstream.runtime.expressions.references import encodings, formats, strings  # noqa: F401
from millstream.runtime.expressions.text_lengths import TEXT_CHARS_MAX, check_lengths

__all__ = ["constant_text"]

register_by_value("INITCAP", "TRANSLATE", "OVERLAY", "INSTR", "IS_DECIMAL", "PRINTF", "TO_BASE64", "FROM_BASE64")
register_by_value("URL_ENCODE", "URL_DECODE", "PARSE_URL", "INET_ATON", "INET_NTOA", "IS_VALID_UTF8", "MAKE_VALID_UTF8")


def constant_text(value: Value) -> str | None:
    """The constant string of a value; None if it varies or is NULL."""
    return value.as_py() if isinstance(value, pa.Scalar) else None


def constant_number(value: Value) -> int | None:
    """The constant number of a value; None if it varies or is NULL."""
    return value.as_py() if isinstance(value, pa.Scalar) else None


def by_reference(context: CallContext, *arguments: Value) -> Value:
    """Runs the reference row by row."""
    return run_by_value(context, REFERENCES[context.call.function], *arguments)


def not_ascii(text: pa.Array) -> pa.Array:
    """Marks rows with non-ASCII characters, excluding NULLs."""
    return pc.fill_null(pc.invert(pc.string_is_ascii(text)), False)


@kernel("||", "CONCAT")
def concat(context: CallContext, *texts: Value) -> Value:
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")


@kernel("CONCAT_WS")
def concat_ws(context: CallContext, separator: Value, *texts: Value) -> Value:
    if not texts:
        return pc.if_else(pc.is_valid(separator), "", separator)
    columns = [column_of(context, text) for text in texts]
    # Arrow drops rows whose strings are all NULL.
    lacking = functools.reduce(pc.and_, (column.is_null() for column in columns))
    columns[0] = pc.if_else(lacking, "", columns[0])
    joined = pc.binary_join_element_wise(*columns, column_of(context, separator), null_handling="skip")
    return pc.if_else(pc.is_valid(separator), joined, pa.scalar(None, pa.string()))


@kernel("CHAR_LENGTH", "CHARACTER_LENGTH")
def char_length(context: CallContext, text: Value) -> Value:
    return pc.utf8_length(text)


@kernel("UPPER")
def upper(context: CallContext, text: Value) -> Value:
    if isinstance(text, pa.Scalar):
        return by_reference(context, text)
    return with_reference_rows(context, pc.ascii_upper(text), not_ascii(text), "UPPER", text)


@kernel("LOWER")
def lower(context: CallContext, text: Value) -> Value:
    if isinstance(text, pa.Scalar):
        return by_reference(context, text)
    return with_reference_rows(context, pc.ascii_lower(text), not_ascii(text), "LOWER", text)


@kernel("REVERSE")
def reverse(context: CallContext, text: Value) -> Value:
    return pc.utf8_reverse(text)


_TRIMS = {"BOTH": pc.utf8_trim, "LEADING": pc.utf8_ltrim, "TRAILING": pc.utf8_rtrim}


def _trim(context: CallContext, side: str, text: Value, characters: Value | None) -> Value:
    """Strips characters from the ends of strings."""
    chosen = " " if characters is None else constant_text(characters)
    if chosen is None:
        return by_reference(context, text, characters)
    return _TRIMS[side](text, characters=chosen) if chosen else text


@kernel("TRIM")
def trim(context: CallContext, text: Value, characters: Value | None = None) -> Value:
    return _trim(context, context.option("side", "BOTH"), text, characters)


@kernel("BTRIM")
def btrim(context: CallContext, text: Value, characters: Value | None = None) -> Value:
    return _trim(context, "BOTH", text, characters)


@kernel("LTRIM")
def ltrim(context: CallContext, text: Value, characters: Value | None = None) -> Value:
    return _trim(context, "LEADING", text, characters)


@kernel("RTRIM")
def rtrim(context: CallContext, text: Value, characters: Value | None = None) -> Value:
    return _trim(context, "TRAILING", text, characters)


@kernel("REPEAT")
def repeat(context: CallContext, text: Value, times: Value) -> Value:
    if isinstance(times, pa.Scalar) and not times.is_valid:
        return pa.scalar(None, pa.string())
    # Bounds the count above the allowed length: otherwise the product wraps around and Arrow aborts the process.
    bounded = pc.min_element_wise(times.cast(pa.int64()), TEXT_CHARS_MAX + 1, skip_nulls=False)
    lengths = pc.multiply(pc.utf8_length(text).cast(pa.int64()), bounded)
    check_lengths("REPEAT", lengths, context.rows)
    return pc.binary_repeat(text, pc.if_else(pc.less(times, 0), pa.scalar(0, times.type), times))


@kernel("SUBSTRING", "SUBSTR")
def substring(context: CallContext, text: Value, start: Value, length: Value | None = None) -> Value:
    first = constant_number(start)
    count = constant_number(length) if length is not None else 0
    if first is None or count is None or count < 0 or isinstance(text, pa.Scalar):
        return by_reference(context, text, start, *([] if length is None else [length]))
    begin = first - 1 if first > 0 else first
    if length is not None and count == 0:
        return _empty(text)
    reaches_end = length is None or begin < 0 <= begin + count
    cut = pc.utf8_slice_codeunits(text, begin, None if reaches_end else begin + count)
    # A start before the first character selects nothing; Arrow would start at the first.
    return pc.if_else(pc.less(pc.utf8_length(text), -first), "", cut) if first < 0 else cut


def _empty(text: Value) -> Value:
    """An empty string for every string; NULL stays NULL."""
    return pc.if_else(pc.is_valid(text), "", text)


@kernel("LEFT")
def left(context: CallContext, text: Value, count: Value) -> Value:
    number = constant_number(count)
    if number is None:
        return by_reference(context, text, count)
    return pc.utf8_slice_codeunits(text, 0, number) if number > 0 else _empty(text)


@kernel("RIGHT")
def right(context: CallContext, text: Value, count: Value) -> Value:
    number = constant_number(count)
    if number is None:
        return by_reference(context, text, count)
    return pc.utf8_slice_codeunits(text, -number) if number > 0 else _empty(text)


@kernel("POSITION", "LOCATE")
def locate(context: CallContext, needle: Value, text: Value, start: Value | None = None) -> Value:
    sought = constant_text(needle)
    begin = 1 if start is None else constant_number(start)
    rest_arguments = [] if start is None else [start]
    if not sought or begin is None or isinstance(text, pa.Scalar):
        return by_reference(context, needle, text, *rest_arguments)
    skipped = max(begin - 1, 0)
    rest = pc.utf8_slice_codeunits(text, skipped) if skipped else text
    offsets = pc.find_substring(rest, sought)  # in bytes, which equal characters only in ASCII
    places = pc.if_else(pc.less(offsets, 0), pa.scalar(0, pa.int32()), pc.add(offsets, skipped + 1).cast(pa.int32()))
    return with_reference_rows(context, places, not_ascii(text), "LOCATE", needle, text, *rest_arguments)


@kernel("STARTSWITH")
def startswith(context: CallContext, text: Value, start: Value) -> Value:
    known = isinstance(start, pa.Scalar) and start.is_valid
    return pc.starts_with(text, pattern=start.as_py()) if known else by_reference(context, text, start)


@kernel("ENDSWITH")
def endswith(context: CallContext, text: Value, end: Value) -> Value:
    known = isinstance(end, pa.Scalar) and end.is_valid
    return pc.ends_with(text, pattern=end.as_py()) if known else by_reference(context, text, end)


@kernel("REPLACE")
def replace(context: CallContext, text: Value, search: Value, replacement: Value) -> Value:
    old, new = constant_text(search), constant_text(replacement)
    if not old or new is None:
        return by_reference(context, text, search, replacement)
    return pc.replace_substring(text, old, new)


@kernel("LPAD", "RPAD")
def pad(context: CallContext, text: Value, length: Value, filling: Value) -> Value:
    check_lengths(context.call.function, length, context.rows)
    count, character = constant_number(length), constant_text(filling)
    if count is None or count < 0 or not character or len(character) > 1 or character > "\uffff":
        return by_reference(context, text, length, filling)
    if isinstance(text, pa.Scalar):
        return by_reference(context, text, length, filling)
    filled = pc.utf8_lpad if context.call.function == "LPAD" else pc.utf8_rpad
    fast = filled(pc.utf8_slice_codeunits(text, 0, count) if count else _empty(text), count, character)
    # Java counts some characters as two units; these rows are few.
    return with_reference_rows(context, fast, not_ascii(text), context.call.function, text, length, filling)


@kernel("ASCII")
def ascii_(context: CallContext, text: Value) -> Value:
    """The first byte of each string, read from the column's buffer."""
    if isinstance(text, pa.Scalar):
        return by_reference(context, text)
    offsets = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1]
    data = text.buffers()[2]
    content = np.frombuffer(data, np.int8) if data is not None and len(data) else np.zeros(1, np.int8)
    starts = np.minimum(offsets[:-1], len(content) - 1)
    first = np.where(offsets[1:] > offsets[:-1], content[starts], 0).astype(np.int32)
    return pa.array(first, mask=_null_mask(text))


def _null_mask(column: pa.Array) -> Any:
    """The mask of NULLs; None without NULLs."""
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


@kernel("CHR")
def chr_(context: CallContext, number: Value) -> Value:
    if isinstance(number, pa.Scalar):
        return by_reference(context, number)
    codes = pc.if_else(pc.less(number, 0), 256, pc.bit_wise_and(number.cast(pa.int64()), 255))
    return pa.array([*map(chr, range(256)), ""], pa.string()).take(codes)


@kernel("SPLIT")
def split(context: CallContext, text: Value, delimiter: Value) -> Value:
    sought = constant_text(delimiter)
    if not sought or isinstance(text, pa.Scalar):
        return by_reference(context, text, delimiter)
    parts = pc.split_pattern(text, sought)
    if not pc.any(pc.equal(text, "")).as_py():
        return parts
    # Splitting the empty string yields an empty array; Arrow returns one empty part.
    return pc.if_else(pc.equal(text, ""), pa.scalar([], parts.type), parts)


@kernel("SPLIT_INDEX")
def split_index(context: CallContext, text: Value, delimiter: Value, index: Value) -> Value:
    part_index = constant_number(index)
    sought = delimiter.as_py() if isinstance(delimiter, pa.Scalar) else None
    if isinstance(sought, int):
        sought = chr(sought) if 0 <= sought <= 255 else None
    if not sought or part_index is None or part_index < 0 or isinstance(text, pa.Scalar):
        return by_reference(context, text, delimiter, index)
    parts = pc.split_pattern(text, sought, max_splits=part_index + 1)
    offsets = parts.offsets.to_numpy()
    places = offsets[:-1].astype(np.int64) + part_index
    missing = places >= offsets[1:]
    if text.null_count:
        missing |= _null_mask(text)
    if part_index == 0:
        missing |= pc.fill_null(pc.equal(text, ""), True).to_numpy(zero_copy_only=False)
    return parts.values.take(pa.array(places, mask=missing))


@kernel("ELT")
def elt(context: CallContext, index: Value, *values: Value) -> Value:
    if isinstance(index, pa.Scalar):
        chosen = index.as_py()
        fits = chosen is not None and 1 <= chosen <= len(values)
        return values[chosen - 1] if fits else pa.scalar(None, context.type.arrow)
    inside = pc.and_(pc.greater_equal(index, 1), pc.less_equal(index, len(values)))
    places = pc.if_else(inside, pc.subtract(index.cast(pa.int64()), 1), pa.scalar(None, pa.int64()))
    return pc.choose(places, *(column_of(context, value) for value in values))


@kernel("IS_ALPHA")
def is_alpha(context: CallContext, text: Value) -> Value:
    if isinstance(text, pa.Scalar):
        return by_reference(context, text)
    fast = pc.fill_null(pc.ascii_is_alpha(text), False)
    return with_reference_rows(context, fast, not_ascii(text), "IS_ALPHA", text)


@kernel("IS_DIGIT")
def is_digit(context: CallContext, text: Value) -> Value:
    if isinstance(text, pa.Scalar):
        return by_reference(context, text)
    fast = pc.fill_null(pc.ascii_is_decimal(text), False)
    return with_reference_rows(context, fast, not_ascii(text), "IS_DIGIT", text)


@kernel("ENCODE")
def encode(context: CallContext, text: Value, charset: Value) -> Value:
    if (constant_text(charset) or "").lower() == "utf-8":
        return text.cast(pa.binary())
    return by_reference(context, text, charset)


@kernel("DECODE")
def decode(context: CallContext, data: Value, charset: Value) -> Value:
    if (constant_text(charset) or "").lower() == "utf-8":
        try:
            return data.cast(pa.string())
        except pa.ArrowInvalid:  # some bytes are not UTF-8
            pass
    return by_reference(context, data, charset)
