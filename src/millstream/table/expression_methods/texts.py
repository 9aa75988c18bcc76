"""What `Expression` does with texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.table.expression_methods.syntax_holder import SyntaxHolder

if TYPE_CHECKING:
    from millstream.table.expression import Expression

__all__ = ["TextMethods"]


class TextMethods(SyntaxHolder):
    """Functions of texts and bytes."""

    def concat(self, other: Any) -> Expression[Any]:
        """Its text, then the other."""
        return self._call("CONCAT", other)

    def starts_with(self, start_expr: Any) -> Expression[Any]:
        """Whether it begins with this."""
        return self._call("STARTSWITH", start_expr)

    def ends_with(self, end_expr: Any) -> Expression[Any]:
        """Whether it ends with this."""
        return self._call("ENDSWITH", end_expr)

    def substring(self, begin_index: Any, length: Any = None) -> Expression[Any]:
        """The piece from a place on, counted from 1, of at most that length."""
        return self._call("SUBSTRING", begin_index, length)

    def substr(self, begin_index: Any, length: Any = None) -> Expression[Any]:
        """The piece from a place on, counted from 1, of at most that length."""
        return self._call("SUBSTR", begin_index, length)

    def trim_leading(self, character: Any = None) -> Expression[Any]:
        """It without blanks, or this character, at its beginning."""
        return self._trimmed("LEADING", character)

    def trim_trailing(self, character: Any = None) -> Expression[Any]:
        """It without blanks, or this character, at its end."""
        return self._trimmed("TRAILING", character)

    def trim(self, character: Any = None) -> Expression[Any]:
        """It without blanks, or this character, at both ends."""
        return self._trimmed("BOTH", character)

    def _trimmed(self, side: str, character: Any) -> Expression[Any]:
        words = {} if side == "BOTH" and character is None else {"side": side}
        return self._call("TRIM", character, **words)

    def ltrim(self, trim_str: Any = None) -> Expression[Any]:
        """It without blanks, or these characters, at its beginning."""
        return self._call("LTRIM", trim_str)

    def rtrim(self, trim_str: Any = None) -> Expression[Any]:
        """It without blanks, or these characters, at its end."""
        return self._call("RTRIM", trim_str)

    def btrim(self, trim_str: Any = None) -> Expression[Any]:
        """It without blanks, or these characters, at both ends."""
        return self._call("BTRIM", trim_str)

    def replace(self, search: Any = None, replacement: Any = None) -> Expression[Any]:
        """It with every occurrence of a text replaced."""
        return self._call("REPLACE", search, replacement)

    def translate(self, from_str: Any, to_str: Any) -> Expression[Any]:
        """It with each character of the first text replaced by that at the same place of the second."""
        return self._call("TRANSLATE", from_str, to_str)

    @property
    def char_length(self) -> Expression[Any]:
        """How many characters it has."""
        return self._call("CHAR_LENGTH")

    @property
    def upper_case(self) -> Expression[Any]:
        """It in capitals."""
        return self._call("UPPER")

    @property
    def lower_case(self) -> Expression[Any]:
        """It in small letters."""
        return self._call("LOWER")

    @property
    def init_cap(self) -> Expression[Any]:
        """It with each word's first letter a capital, and the others small."""
        return self._call("INITCAP")

    def position(self, haystack: Any) -> Expression[Any]:
        """The place, counted from 1, where it first stands in another text; 0 if nowhere."""
        return self._call("POSITION", haystack)

    def lpad(self, length: Any, pad: Any) -> Expression[Any]:
        """It filled up at its beginning, or cut, to that length."""
        return self._call("LPAD", length, pad)

    def rpad(self, length: Any, pad: Any) -> Expression[Any]:
        """It filled up at its end, or cut, to that length."""
        return self._call("RPAD", length, pad)

    def overlay(self, new_string: Any, starting: Any, length: Any = None) -> Expression[Any]:
        """It with a piece, from a place on, replaced by a text."""
        return self._call("OVERLAY", new_string, starting, length)

    @property
    def from_base64(self) -> Expression[Any]:
        """The text that is written in Base64."""
        return self._call("FROM_BASE64")

    @property
    def to_base64(self) -> Expression[Any]:
        """It in Base64."""
        return self._call("TO_BASE64")

    @property
    def ascii(self) -> Expression[Any]:
        """The number of its first character."""
        return self._call("ASCII")

    @property
    def chr(self) -> Expression[Any]:
        """The character with that number."""
        return self._call("CHR")

    def decode(self, charset: Any) -> Expression[Any]:
        """The text that bytes of a charset stand for."""
        return self._call("DECODE", charset)

    def encode(self, charset: Any) -> Expression[Any]:
        """Its bytes in a charset."""
        return self._call("ENCODE", charset)

    def left(self, length: Any) -> Expression[Any]:
        """Its first characters."""
        return self._call("LEFT", length)

    def right(self, length: Any) -> Expression[Any]:
        """Its last characters."""
        return self._call("RIGHT", length)

    def instr(self, s: Any) -> Expression[Any]:
        """The place, counted from 1, where a text first stands in it; 0 if nowhere."""
        return self._call("INSTR", s)

    def locate(self, s: Any, pos: Any = None) -> Expression[Any]:
        """The place, counted from 1, where it first stands in another text; looked for from `pos` on."""
        return self._call("LOCATE", s, pos)

    def url_decode(self) -> Expression[Any]:
        """The text that is written as part of an address."""
        return self._call("URL_DECODE")

    def url_encode(self) -> Expression[Any]:
        """It as part of an address."""
        return self._call("URL_ENCODE")

    @property
    def is_valid_utf8(self) -> Expression[Any]:
        """Whether bytes are text in UTF-8."""
        return self._call("IS_VALID_UTF8")

    @property
    def make_valid_utf8(self) -> Expression[Any]:
        """Bytes as text, with a mark where they are none."""
        return self._call("MAKE_VALID_UTF8")

    def parse_url(self, part_to_extract: Any, key: Any = None) -> Expression[Any]:
        """A part of an address: HOST, PATH, QUERY, …; of the query, the value of a key."""
        return self._call("PARSE_URL", part_to_extract, key)

    def printf(self, *obj: Any) -> Expression[Any]:
        """It as a pattern of `printf`, filled in."""
        return self._call("PRINTF", *obj)

    def repeat(self, n: Any) -> Expression[Any]:
        """It so many times."""
        return self._call("REPEAT", n)

    @property
    def reverse(self) -> Expression[Any]:
        """It backwards."""
        return self._call("REVERSE")

    def split_index(self, separator: Any, index: Any) -> Expression[Any]:
        """The piece between separators, counted from 0; NULL if there is none."""
        return self._call("SPLIT_INDEX", separator, index)

    def split(self, delimiter: Any) -> Expression[Any]:
        """The pieces between delimiters, as an array."""
        return self._call("SPLIT", delimiter)

    def str_to_map(self, list_delimiter: Any = None, key_value_delimiter: Any = None) -> Expression[Any]:
        """The map that is written as key=value,key=value."""
        return self._call("STR_TO_MAP", list_delimiter, key_value_delimiter)

    def elt(self, expr: Any, *exprs: Any) -> Expression[Any]:
        """That of the expressions that it is the number of, counted from 1."""
        return self._call("ELT", expr, *exprs)
