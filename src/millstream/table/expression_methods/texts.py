"""String functions of `Expression`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.table.expression_methods.syntax_holder import SyntaxHolder

if TYPE_CHECKING:
    from millstream.table.expression import Expression

__all__ = ["TextMethods"]


class TextMethods(SyntaxHolder):
    """Functions of strings and bytes."""

    def concat(self, other: Any) -> Expression[Any]:
        """The concatenation with another string."""
        return self._call("CONCAT", other)

    def starts_with(self, start_expr: Any) -> Expression[Any]:
        """Whether the string starts with a string."""
        return self._call("STARTSWITH", start_expr)

    def ends_with(self, end_expr: Any) -> Expression[Any]:
        """Whether the string ends with a string."""
        return self._call("ENDSWITH", end_expr)

    def substring(self, begin_index: Any, length: Any = None) -> Expression[Any]:
        """The substring from a position, counted from 1, of at most the given length."""
        return self._call("SUBSTRING", begin_index, length)

    def substr(self, begin_index: Any, length: Any = None) -> Expression[Any]:
        """The substring from a position, counted from 1, of at most the given length."""
        return self._call("SUBSTR", begin_index, length)

    def trim_leading(self, character: Any = None) -> Expression[Any]:
        """Trims blanks, or this character, from the start of the string."""
        return self._trimmed("LEADING", character)

    def trim_trailing(self, character: Any = None) -> Expression[Any]:
        """Trims blanks, or this character, from the end of the string."""
        return self._trimmed("TRAILING", character)

    def trim(self, character: Any = None) -> Expression[Any]:
        """Trims blanks, or this character, from both ends."""
        return self._trimmed("BOTH", character)

    def _trimmed(self, side: str, character: Any) -> Expression[Any]:
        words = {} if side == "BOTH" and character is None else {"side": side}
        return self._call("TRIM", character, **words)

    def ltrim(self, trim_str: Any = None) -> Expression[Any]:
        """Trims blanks, or these characters, from the start of the string."""
        return self._call("LTRIM", trim_str)

    def rtrim(self, trim_str: Any = None) -> Expression[Any]:
        """Trims blanks, or these characters, from the end of the string."""
        return self._call("RTRIM", trim_str)

    def btrim(self, trim_str: Any = None) -> Expression[Any]:
        """Trims blanks, or these characters, from both ends."""
        return self._call("BTRIM", trim_str)

    def replace(self, search: Any = None, replacement: Any = None) -> Expression[Any]:
        """Replaces every occurrence of a string."""
        return self._call("REPLACE", search, replacement)

    def translate(self, from_str: Any, to_str: Any) -> Expression[Any]:
        """Replaces each character of the first string by the character at the same position of the second."""
        return self._call("TRANSLATE", from_str, to_str)

    @property
    def char_length(self) -> Expression[Any]:
        """The length in characters."""
        return self._call("CHAR_LENGTH")

    @property
    def upper_case(self) -> Expression[Any]:
        """Upper case."""
        return self._call("UPPER")

    @property
    def lower_case(self) -> Expression[Any]:
        """Lower case."""
        return self._call("LOWER")

    @property
    def init_cap(self) -> Expression[Any]:
        """Upper case for the first letter of each word, lower case for the others."""
        return self._call("INITCAP")

    def position(self, haystack: Any) -> Expression[Any]:
        """The first position of the string in another one, counted from 1; 0 if it does not occur."""
        return self._call("POSITION", haystack)

    def lpad(self, length: Any, pad: Any) -> Expression[Any]:
        """Pads the string at its start, or truncates it, to the given length."""
        return self._call("LPAD", length, pad)

    def rpad(self, length: Any, pad: Any) -> Expression[Any]:
        """Pads the string at its end, or truncates it, to the given length."""
        return self._call("RPAD", length, pad)

    def overlay(self, new_string: Any, starting: Any, length: Any = None) -> Expression[Any]:
        """Replaces a substring from a position on by a string."""
        return self._call("OVERLAY", new_string, starting, length)

    @property
    def from_base64(self) -> Expression[Any]:
        """Decodes Base64."""
        return self._call("FROM_BASE64")

    @property
    def to_base64(self) -> Expression[Any]:
        """Encodes as Base64."""
        return self._call("TO_BASE64")

    @property
    def ascii(self) -> Expression[Any]:
        """The code point of the first character."""
        return self._call("ASCII")

    @property
    def chr(self) -> Expression[Any]:
        """The character with the given code point."""
        return self._call("CHR")

    def decode(self, charset: Any) -> Expression[Any]:
        """Decodes bytes with a charset."""
        return self._call("DECODE", charset)

    def encode(self, charset: Any) -> Expression[Any]:
        """Encodes with a charset."""
        return self._call("ENCODE", charset)

    def left(self, length: Any) -> Expression[Any]:
        """The first characters of the string."""
        return self._call("LEFT", length)

    def right(self, length: Any) -> Expression[Any]:
        """The last characters of the string."""
        return self._call("RIGHT", length)

    def instr(self, s: Any) -> Expression[Any]:
        """The first position of another string in this one, counted from 1; 0 if it does not occur."""
        return self._call("INSTR", s)

    def locate(self, s: Any, pos: Any = None) -> Expression[Any]:
        """The first position of the string in another one, counted from 1, searching from `pos` on."""
        return self._call("LOCATE", s, pos)

    def url_decode(self) -> Expression[Any]:
        """Decodes a URL component."""
        return self._call("URL_DECODE")

    def url_encode(self) -> Expression[Any]:
        """Encodes as a URL component."""
        return self._call("URL_ENCODE")

    @property
    def is_valid_utf8(self) -> Expression[Any]:
        """Whether bytes are valid UTF-8."""
        return self._call("IS_VALID_UTF8")

    @property
    def make_valid_utf8(self) -> Expression[Any]:
        """Decodes bytes as UTF-8, with replacement characters for invalid ones."""
        return self._call("MAKE_VALID_UTF8")

    def parse_url(self, part_to_extract: Any, key: Any = None) -> Expression[Any]:
        """A part of a URL: HOST, PATH, QUERY, …; for the query, the value of a key."""
        return self._call("PARSE_URL", part_to_extract, key)

    def printf(self, *obj: Any) -> Expression[Any]:
        """Formats the arguments with this string as `printf` pattern."""
        return self._call("PRINTF", *obj)

    def repeat(self, n: Any) -> Expression[Any]:
        """Repeats the string `n` times."""
        return self._call("REPEAT", n)

    @property
    def reverse(self) -> Expression[Any]:
        """Reverses the string."""
        return self._call("REVERSE")

    def split_index(self, separator: Any, index: Any) -> Expression[Any]:
        """The part between separators, counted from 0; NULL if it does not exist."""
        return self._call("SPLIT_INDEX", separator, index)

    def split(self, delimiter: Any) -> Expression[Any]:
        """The parts between delimiters, as an array."""
        return self._call("SPLIT", delimiter)

    def str_to_map(self, list_delimiter: Any = None, key_value_delimiter: Any = None) -> Expression[Any]:
        """Parses a map written as key=value,key=value."""
        return self._call("STR_TO_MAP", list_delimiter, key_value_delimiter)

    def elt(self, expr: Any, *exprs: Any) -> Expression[Any]:
        """The expression at its index, counted from 1."""
        return self._call("ELT", expr, *exprs)
