"""Strings: lengths, cases, substrings, padding, searching, encoding.

Positions count characters from 1. A result's maximum length is derived from the arguments; if unknown, the type is
STRING.
"""

from __future__ import annotations

from typing import Any

from millstream.expressions.coercion import common_type
from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import Arguments, SignatureError
from millstream.expressions.functions.signatures import (
    ANY,
    BYTES,
    STRING,
    TEXT,
    TEXT_OR_BYTES,
    WHOLE,
    Nulls,
    Parameter,
    either,
    optional,
    repeated,
    same_as,
    scalar,
)
from millstream.expressions.nested_types import ArrayType, MapType
from millstream.expressions.types import (
    LENGTH_MAX,
    BigIntType,
    BooleanType,
    CharType,
    IntType,
    NumericType,
    VarBinaryType,
    VarCharType,
)

__all__: list[str] = []

FAMILY = "strings"
_BOOLEAN, _INT = BooleanType(), IntType()
_TEXT_OR_NUMBER = either(
    "text or a number",
    TEXT,
    Parameter("a number", lambda type_: STRING if isinstance(type_, NumericType) else None),
)


def _length(type_: DataType) -> int:
    return type_.length if isinstance(type_, CharType | VarCharType) else LENGTH_MAX


def _varchar_type(arguments: Arguments) -> DataType:
    """A string type with the maximum length of the first argument."""
    return VarCharType(_length(arguments.types[0]))


def _concat_type(arguments: Arguments) -> DataType:
    """The string type with the sum of the lengths; CHAR only if all arguments are CHAR."""
    length = min(sum(map(_length, arguments.types)), LENGTH_MAX)
    fixed = all(isinstance(type_, CharType) for type_ in arguments.types)
    return CharType(length) if fixed else VarCharType(length)


def _overlay_type(arguments: Arguments) -> DataType:
    return VarCharType(min(_length(arguments.types[0]) + _length(arguments.types[1]), LENGTH_MAX))


def _choice_type(arguments: Arguments) -> DataType:
    """The common type of the choices of ELT."""
    index = arguments.constant(0)
    if isinstance(index, int) and index < 0:
        raise SignatureError(f"ELT takes an index of 0 or more, got {index}. Call it as ELT(index, text, …).")
    shared = common_type(arguments.types[1:])
    if shared is None:
        raise SignatureError("ELT takes only strings or only bytes. Call it as ELT(index, text, …).")
    return shared


def _define_lengths_and_cases() -> None:
    scalar("CHAR_LENGTH(text)", [TEXT], _INT, "The number of characters.", FAMILY, may_fail=False, method="char_length")
    scalar("CHARACTER_LENGTH(text)", [TEXT], _INT, "The number of characters.", FAMILY, may_fail=False)
    cheap: dict[str, Any] = {"family": FAMILY, "may_fail": False}
    scalar("UPPER(text)", [TEXT], same_as(0), "The text in upper case.", method="upper_case", **cheap)
    scalar("LOWER(text)", [TEXT], same_as(0), "The text in lower case.", method="lower_case", **cheap)
    doc = "The text with each word of ASCII letters and digits capitalised."
    scalar("INITCAP(text)", [TEXT], same_as(0), doc, is_expensive=True, method="init_cap", **cheap)
    scalar(
        "REVERSE(text)", [TEXT], STRING, "The characters from last to first.", nulls="always", **cheap, method="reverse"
    )
    doc = "The first byte as a number from -128 to 127; 0 for empty text."
    scalar("ASCII(text)", [TEXT], _INT, doc, method="ascii", **cheap)
    doc = "The character of a code, modulo 256; empty text if it is negative."
    scalar("CHR(number)", [WHOLE], STRING, doc, nulls="always", method="chr", **cheap)
    for name, doc in {
        "IS_ALPHA": "Whether all characters are letters; FALSE for NULL.",
        "IS_DIGIT": "Whether all characters are digits; FALSE for NULL.",
        "IS_DECIMAL": "Whether the text is a number; FALSE for NULL.",
    }.items():
        scalar(
            f"{name}(text)", [_TEXT_OR_NUMBER], _BOOLEAN, doc, nulls="never", is_expensive=name == "IS_DECIMAL", **cheap
        )


def _define_parts() -> None:
    place = [TEXT, WHOLE, optional(WHOLE)]
    doc = "Text from a position (negative: from the end), up to a length. NULL if the length is negative."
    for name in ("SUBSTRING", "SUBSTR"):
        scalar(
            f"{name}(text, start [, length])",
            place,
            _varchar_type,
            doc,
            FAMILY,
            nulls="always",
            may_fail=False,
            method=name.lower(),
        )
    doc = "The first characters; none if the number is negative."
    scalar("LEFT(text, count)", place[:2], _varchar_type, doc, FAMILY, nulls="always", may_fail=False, method="left")
    doc = "The last characters; none if the number is negative."
    scalar("RIGHT(text, count)", place[:2], _varchar_type, doc, FAMILY, nulls="always", may_fail=False, method="right")
    doc = "The parts between delimiters; an empty delimiter splits into characters."
    parts = ArrayType(STRING)
    scalar(
        "SPLIT(text, delimiter)", [TEXT, TEXT], parts, doc, FAMILY, may_fail=False, is_expensive=True, method="split"
    )
    doc = "The part between delimiters at an index from 0; NULL if there is none."
    delimiter = either("text or a character code", TEXT, WHOLE)
    scalar(
        "SPLIT_INDEX(text, delimiter, index)",
        [TEXT, delimiter, WHOLE],
        STRING,
        doc,
        FAMILY,
        nulls="always",
        may_fail=False,
        is_expensive=True,
        method="split_index",
    )
    doc = "The text at an index from 1; NULL if there is none."
    choices = [WHOLE, repeated(TEXT_OR_BYTES)]
    scalar(
        "ELT(index, text, …)",
        choices,
        _choice_type,
        doc,
        FAMILY,
        nulls="always",
        common=(1, -1),
        may_fail=False,
        method="elt",
    )
    doc = "Keys and values of a string like `a=1,b=2`; the delimiters are patterns."
    scalar(
        "STR_TO_MAP(text [, pairs [, values]])",
        [TEXT, optional(TEXT), optional(TEXT)],
        MapType(STRING, STRING),
        doc,
        FAMILY,
        nulls="always",
        is_expensive=True,
        method="str_to_map",
    )


def _define_changes() -> None:
    scalar("text || text", [TEXT, TEXT], _concat_type, "Both strings, concatenated.", FAMILY, name="||", may_fail=False)
    doc = "The strings, concatenated."
    scalar("CONCAT(text, …)", [repeated(TEXT)], STRING, doc, FAMILY, may_fail=False, method="concat")
    doc = "The strings that are not NULL, joined by a separator."
    scalar("CONCAT_WS(separator, text, …)", [TEXT, repeated(optional(TEXT))], STRING, doc, FAMILY, may_fail=False)
    doc = "The text stripped of characters (default: blanks) at both ends, or at one."
    scalar(
        "TRIM([side] [characters] FROM text)",
        [TEXT, optional(TEXT)],
        _varchar_type,
        doc,
        FAMILY,
        may_fail=False,
        method="trim",
    )
    for name, side in {"LTRIM": "the start", "RTRIM": "the end", "BTRIM": "both ends"}.items():
        doc = f"The text stripped of characters (default: blanks) at {side}."
        result = STRING if name == "BTRIM" else _varchar_type
        scalar(
            f"{name}(text [, characters])",
            [TEXT, optional(TEXT)],
            result,
            doc,
            FAMILY,
            may_fail=False,
            method=name.lower(),
        )
    doc = "The text repeated a number of times."
    scalar("REPEAT(text, times)", [TEXT, WHOLE], STRING, doc, FAMILY, may_fail=False, method="repeat")
    doc = "The text with all occurrences of another replaced."
    scalar("REPLACE(text, search, replacement)", [TEXT] * 3, STRING, doc, FAMILY, may_fail=False, method="replace")
    doc = "The text with characters replaced one by one, or deleted without a counterpart."
    scalar(
        "TRANSLATE(text, from, to)",
        [TEXT] * 3,
        lambda arguments: STRING.with_nullability(arguments.types[0].is_nullable),
        doc,
        FAMILY,
        nulls="own",
        may_fail=False,
        is_expensive=True,
        method="translate",
    )
    doc = "The text with a range of characters replaced (default: the length of the replacement)."
    scalar(
        "OVERLAY(text PLACING new FROM start [FOR length])",
        [TEXT, TEXT, WHOLE, optional(WHOLE)],
        _overlay_type,
        doc,
        FAMILY,
        may_fail=False,
        is_expensive=True,
        method="overlay",
    )


def _define_layouts() -> None:
    for name, side in {"LPAD": "left", "RPAD": "right"}.items():
        doc = f"The text truncated or padded on the {side} to a length. NULL for a negative length or empty padding."
        scalar(
            f"{name}(text, length, filling)",
            [TEXT, WHOLE, TEXT],
            STRING,
            doc,
            FAMILY,
            nulls="always",
            may_fail=False,
            method=name.lower(),
        )
    doc = "Text formatted by a Java format, `%s is %d`; NULL if the format is invalid."
    scalar(
        "PRINTF(format, value, …)",
        [TEXT, repeated(optional(ANY))],
        STRING,
        doc,
        FAMILY,
        nulls="always",
        may_fail=False,
        is_expensive=True,
        method="printf",
    )


def _define_searches() -> None:
    doc = "The position of a string in another, from 1; 0 if it is absent."
    sought = [TEXT, TEXT, optional(WHOLE)]
    scalar("POSITION(text IN other [FROM start])", sought, _INT, doc, FAMILY, may_fail=False, method="position")
    scalar("LOCATE(text, other [, start])", sought, _INT, doc, FAMILY, may_fail=False, method="locate")
    doc = "The position of an occurrence in the text; a negative start searches backwards from the end."
    instr = [TEXT, TEXT, optional(WHOLE), optional(WHOLE)]
    scalar("INSTR(text, other [, start [, occurrence]])", instr, _INT, doc, FAMILY, is_expensive=True, method="instr")
    for name, doc in {
        "STARTSWITH": "Whether the text starts with another; TRUE for an empty one.",
        "ENDSWITH": "Whether the text ends with another; TRUE for an empty one.",
    }.items():
        method = {"STARTSWITH": "starts_with", "ENDSWITH": "ends_with"}[name]
        both = [TEXT_OR_BYTES, TEXT_OR_BYTES]
        scalar(f"{name}(text, other)", both, _BOOLEAN, doc, FAMILY, common=(0, 1), may_fail=False, method=method)


def _define_encodings() -> None:
    always: Nulls = "always"
    any_: Nulls = "any"
    many = {
        "TO_BASE64(text)": ([TEXT_OR_BYTES], STRING, "The text or bytes in Base64.", any_, False),
        "FROM_BASE64(text)": (
            [TEXT_OR_BYTES],
            STRING,
            "The text decoded from Base64; an error if it is malformed.",
            any_,
            True,
        ),
        "ENCODE(text, charset)": (
            [TEXT, TEXT],
            VarBinaryType(LENGTH_MAX),
            "The text encoded in a charset.",
            any_,
            True,
        ),
        "DECODE(bytes, charset)": ([BYTES, TEXT], STRING, "The text decoded from a charset.", any_, True),
        "URL_ENCODE(text)": ([TEXT], STRING, "The text encoded for the URL of a form.", always, False),
        "URL_DECODE(text)": ([TEXT], STRING, "The text decoded from a URL; NULL if it is malformed.", always, False),
        "INET_ATON(address)": (
            [TEXT],
            BigIntType(),
            "The number of an IPv4 address, a.b being a.0.0.b and a.b.c a.b.0.c; NULL if it is malformed.",
            always,
            False,
        ),
        "INET_NTOA(number)": ([WHOLE], STRING, "The IPv4 address of a number; NULL if it has none.", always, False),
        "IS_VALID_UTF8(bytes)": ([BYTES], _BOOLEAN, "Whether the bytes are UTF-8.", any_, False),
        "MAKE_VALID_UTF8(bytes)": (
            [BYTES],
            STRING,
            "The text of the bytes; malformed UTF-8 is replaced.",
            any_,
            False,
        ),
    }
    for syntax, (parameters, result, doc, nulls, may_fail) in many.items():
        method = syntax.split("(", 1)[0].lower()
        scalar(
            syntax, parameters, result, doc, FAMILY, nulls=nulls, may_fail=may_fail, is_expensive=True, method=method
        )
    doc = "A part of a URL (HOST, PATH, QUERY, REF, PROTOCOL, FILE, AUTHORITY, USERINFO), or a key's value in QUERY."
    scalar(
        "PARSE_URL(url, part [, key])",
        [TEXT, TEXT, optional(TEXT)],
        STRING,
        doc,
        FAMILY,
        nulls="always",
        may_fail=False,
        is_expensive=True,
        method="parse_url",
    )


_define_lengths_and_cases()
_define_parts()
_define_changes()
_define_layouts()
_define_searches()
_define_encodings()
