"""Constants: numbers, strings, bytes, dates and times, intervals. Their format is checked here, where the position is
known."""

from __future__ import annotations

import datetime
import re

from millstream.sql.data_types import TypeReader
from millstream.sql.keywords import unit_of
from millstream.sql.places import problem
from millstream.sql.syntax import Interval, Literal
from millstream.sql.tokens import Token, TokenKind

__all__ = ["LiteralReader"]

_TIME = r"(?P<hour>\d{1,2}):(?P<minute>\d{1,2}):(?P<second>\d{1,2})(?:\.\d*)?"
_DATE = r"(?P<year>\d{1,4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
_FORMS = {
    "DATE": (re.compile(_DATE), "DATE '2026-11-16'"),
    "TIME": (re.compile(_TIME), "TIME '12:30:00'"),
    "TIMESTAMP": (re.compile(f"{_DATE}(?:[ T]{_TIME})?"), "TIMESTAMP '2026-11-16 12:30:00'"),
}
_FORMS["TIMESTAMP_LTZ"] = (_FORMS["TIMESTAMP"][0], "TIMESTAMP WITH LOCAL TIME ZONE '2026-11-16 12:30:00'")

_INTERVAL_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_INTERVAL_PAIRS = {
    "YEAR": ("MONTH",),
    "DAY": ("HOUR", "MINUTE", "SECOND"),
    "HOUR": ("MINUTE", "SECOND"),
    "MINUTE": ("SECOND",),
}
# Separators between the parts of an interval, as in `INTERVAL '1 02:03:04.5' DAY TO SECOND`.
_ORDER = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_SEPARATORS = {"MONTH": "-", "HOUR": " ", "MINUTE": ":", "SECOND": ":"}


class LiteralReader(TypeReader):
    """Parses constants."""

    def number(self) -> Literal:
        token = self.take()
        return Literal("NUMBER", token.value, span=self.span_of(token))

    def text_literal(self) -> Literal:
        """A string. Strings on consecutive lines are concatenated; U&'…' may be followed by UESCAPE."""
        first = self.take()
        value = self._unicode(first) if first.word == "U&" else first.value
        while (
            self.token.kind is TokenKind.TEXT and "\n" in self.text[self.tokens[self.place - 1].stop : self.token.start]
        ):
            value += self.take().value
        return Literal("TEXT", value, span=self.since(first.start))

    def _unicode(self, token: Token) -> str:
        escape = "\\"
        if self.accept("UESCAPE"):
            sign = self.token
            escape = self.plain_text("one sign in single quotes")
            if len(escape) != 1 or escape in "+' \t\n" or re.fullmatch(r"[0-9a-fA-F]", escape):
                raise problem(
                    "UESCAPE takes one sign, which is not a hexadecimal digit, +, quote or blank: UESCAPE '!'",
                    self.span_of(sign),
                )
        mark = re.escape(escape)

        def meant(match: re.Match[str]) -> str:
            code = match.group(1) or match.group(2)
            if code is not None and int(code, 16) <= 0x10FFFF:
                return chr(int(code, 16))
            if match.group() == escape * 2:
                return escape
            raise problem(
                f"{escape} in this text is followed by neither four hexadecimal digits, nor + and six, nor {escape}",
                self.span_of(token),
            )

        return re.sub(rf"{mark}(?:([0-9a-fA-F]{{4}})|\+([0-9a-fA-F]{{6}})|{mark}|)", meant, token.value)

    def bytes_literal(self) -> Literal:
        token = self.take()
        return Literal("BYTES", bytes.fromhex(token.value), span=self.span_of(token))

    def at_dated_literal(self) -> bool:
        """Whether DATE '…', TIME '…' or TIMESTAMP '…' is next."""
        word, following = self.token.word, self.ahead()
        if word in ("DATE", "TIME", "TIMESTAMP"):
            return following.kind is TokenKind.TEXT or (word == "TIMESTAMP" and following.word in ("WITH", "WITHOUT"))
        return False

    def dated_literal(self) -> Literal:
        start = self.take()
        kind = start.word
        if self.accept("WITH"):
            self.expect("LOCAL", "TIME", "ZONE")
            kind = "TIMESTAMP_LTZ"
        elif self.accept("WITHOUT"):
            self.expect("TIME", "ZONE")
        written = self.token
        value = self.plain_text()
        form, example = _FORMS[kind]
        match = form.fullmatch(value.strip())
        if match is not None and not _exists(match.groupdict()):
            raise problem(f"'{value}' is written well, but there is no such day or time", self.span_of(written))
        if match is None:
            raise problem(f"'{value}' is not a {kind.replace('_', ' ')}. Write {example}", self.span_of(written))
        return Literal(kind, value, span=self.since(start.start))

    def interval(self) -> Interval:
        """INTERVAL [-] 'text' unit [(precision[, fraction])] [TO unit [(fraction)]]."""
        start = self.take()
        negative = self.accept_one("-", "+") == "-"
        written = self.token
        if written.kind is not TokenKind.TEXT:
            raise self._bare_interval(written)
        value = self.take().value
        inner = re.fullmatch(r"\s*([+-]?\d+)\s*([a-zA-Z]+)\s*", value)
        if inner is not None and unit_of(inner.group(2).upper()):
            unit = unit_of(inner.group(2).upper())
            raise problem(
                f"the unit of an interval follows the quotes: INTERVAL '{inner.group(1)}' {unit}",
                self.span_of(written),
            )
        unit = self._interval_unit(_INTERVAL_UNITS)
        precision, fraction = self._precisions()
        unit_to = None
        if self.at("TO"):
            self.take()
            unit_to = self._interval_unit(_INTERVAL_PAIRS.get(unit, ()))
            if self.at("("):
                (fraction,) = self.listed(lambda: self.whole_number("a precision"))
        if _interval_form(unit, unit_to).fullmatch(value.strip()) is None:
            units = unit if unit_to is None else f"{unit} TO {unit_to}"
            raise problem(
                f"'{value}' is not an interval of {units}. Write INTERVAL '{_interval_example(unit, unit_to)}' {units}",
                self.span_of(written),
            )
        return Interval(value, unit, unit_to, precision, fraction, negative, span=self.since(start.start))

    def _bare_interval(self, token: Token) -> Exception:
        unit = self.ahead().word if unit_of(self.ahead().word) else "MINUTE"
        if token.kind is TokenKind.NUMBER:
            return problem(
                f"the amount of an interval is put in single quotes: INTERVAL '{token.value}' {unit}",
                self.span_of(token),
            )
        if self.at_name():
            return problem(
                f"the amount of an interval is a constant in single quotes. Write {token.value} * INTERVAL '1' {unit}",
                self.span_of(token),
            )
        self.fail(expected="the amount in single quotes")

    def _interval_unit(self, units: tuple[str, ...]) -> str:
        unit = unit_of(self.token.word)
        if unit is None or unit not in units:
            self._possibilities.extend(units)
            self.fail(
                expected=", ".join(units[:-1]) + (" or " if len(units) > 1 else "") + (units[-1] if units else "no TO")
            )
        self.take()
        return unit

    def interval_units(self) -> str:
        """The units that follow the parentheses of a computed interval: DAY, YEAR TO MONTH, SECOND(3)."""
        units = unit = self._interval_unit(_INTERVAL_UNITS)
        self._precisions()
        if self.accept("TO"):
            units += f" TO {self._interval_unit(_INTERVAL_PAIRS.get(unit, ()))}"
            self._precisions()
        return units

    def _precisions(self) -> tuple[int | None, int | None]:
        if not self.at("("):
            return None, None
        precision, *rest = self.listed(lambda: self.whole_number("a precision"))
        return precision, rest[0] if rest else None


def _exists(parts: dict[str, str | None]) -> bool:
    """Whether the date and the time of day exist."""
    numbers = {name: int(digits) for name, digits in parts.items() if digits is not None}
    try:
        if "year" in numbers:
            datetime.date(numbers["year"] or 4, numbers["month"], numbers["day"])
        if "hour" in numbers:
            datetime.time(numbers["hour"], numbers["minute"], numbers["second"])
    except ValueError:
        return False
    return True


def _interval_form(unit: str, unit_to: str | None) -> re.Pattern[str]:
    number = r"\d+(?:\.\d*)?"
    if unit_to is None:
        return re.compile(rf"[+-]?{number if unit == 'SECOND' else r'[0-9]+'}")
    parts = _ORDER[_ORDER.index(unit) : _ORDER.index(unit_to) + 1]
    form = "".join(
        ("" if place == 0 else _separator(part)) + (number if part == "SECOND" else r"\d+")
        for place, part in enumerate(parts)
    )
    return re.compile(rf"[+-]?{form}")


def _separator(part: str) -> str:
    return r"\s+" if _SEPARATORS[part] == " " else _SEPARATORS[part]


def _interval_example(unit: str, unit_to: str | None) -> str:
    if unit_to is None:
        return "1"
    parts = _ORDER[_ORDER.index(unit) : _ORDER.index(unit_to) + 1]
    return "".join(
        ("1" if place == 0 else _SEPARATORS[part] + {"MONTH": "2", "HOUR": "02"}.get(part, "30"))
        for place, part in enumerate(parts)
    )
