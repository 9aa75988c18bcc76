r"""Translates a Java pattern for Python's `re` and for RE2 in one pass; see `java_patterns` for the reasons.

A recursive-descent parser: alternatives contain sequences of atoms with quantifiers. Flags apply until the end of their
group. Every atom is written so that a following quantifier applies to all of it.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

from millstream.runtime.expressions.character_sets import ALL, CodePoints, class_text, complement, of_characters
from millstream.runtime.expressions.java_pattern_classes import (
    LINE_ENDS,
    Cursor,
    Flags,
    UnsupportedPattern,
    class_of,
    escaped_character,
    escaped_set,
    fold_case,
)

__all__ = ["Reader"]

_ENDS = "[\r\x85\u2028\u2029]"
_LAST_END = rf"(?:\Z|(?=\r\n\Z)|(?<!\r)(?=\n\Z)|(?={_ENDS}\Z))"
_EACH_END = rf"(?:\Z|(?={_ENDS})|(?<!\r)(?=\n))"
_EACH_START = "(?:(?!\\Z)(?:\\A|(?<=[\n\x85\u2028\u2029])|(?<=\r)(?!\n)))"
_ANY_END = "(?:\r\n|[\n\x0b\f\r\x85\u2028\u2029])"
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_NAME = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)>")
_COUNTS = re.compile(r"\{([0-9]+)(,?)([0-9]*)\}")
_QUOTED = re.compile(r"\\(?:Q(.*?)(?:\\E|$)|.)", re.DOTALL)
_RE2_COUNT_MAX = 1000
_COUNT_MAX = 2**31 - 1


class Reader(Cursor):
    """A parser of one pattern, with its output and the groups seen so far."""

    def __init__(self, source: str) -> None:
        super().__init__(_QUOTED.sub(_unquote, source))
        self.python: list[str] = []
        self.re2: list[str | int] = []
        self.re2_can = True
        self.group_count = 0
        self.names: dict[str, int] = {}
        self.uncertain: set[int] = set()
        self.needs_plain_lines = False
        self.needs_ascii = False

    def read(self) -> None:
        """Translates the whole pattern."""
        self.alternatives(Flags())
        if self.at < len(self.source):
            self.fail("a ) that closes nothing")

    def write(self, python: str, re2: str | int | None = None) -> None:
        """Writes a part; RE2 gets the same text unless `re2` is passed."""
        self.python.append(python)
        self.re2.append(python if re2 is None else re2)

    def only_python(self, text: str) -> None:
        """Writes a part that RE2 does not support."""
        self.write(text)
        self.re2_can = False

    def write_set(self, points: CodePoints) -> None:
        """Writes a set of characters."""
        if not points:
            self.write("(?!)", r"[^\x00-\x{10FFFF}]")
        elif points == ALL:
            self.write("(?s:.)")
        else:
            self.write(class_text(points))

    # --- structure ----------------------------------------------------------------------------------------------------

    def alternatives(self, flags: Flags) -> list[int]:
        """Parses alternatives up to the end of the group or pattern; returns the positions of the bars written."""
        first_group = self.group_count + 1
        flags = self.sequence(flags)
        bars: list[int] = []
        while self.accept("|"):
            bars.append(len(self.python))
            self.write("|")
            flags = self.sequence(flags)
        if bars:  # a group in one alternative does not participate in a match of another alternative
            self.uncertain.update(range(first_group, self.group_count + 1))
        return bars

    def sequence(self, flags: Flags) -> Flags:
        """Parses atoms with their quantifiers; returns the flags in effect after them."""
        while True:
            if flags.x:
                self.skip_blanks()
            if self.peek() in ("", "|", ")"):
                return flags
            match = _FLAGS.match(self.source, self.at)
            if match and match[3] == ")":
                flags = self.apply_flags(flags, match)
                self.at = match.end()
                continue
            start, first_group = len(self.python), self.group_count + 1
            self.atom(flags)
            if flags.x:
                self.skip_blanks()
            self.quantifier(start, first_group)

    def apply_flags(self, flags: Flags, match: re.Match[str]) -> Flags:
        """Applies flag letters that set and clear flags."""
        for letters, value in ((match[1], True), (match[2] or "", False)):
            for letter in letters:
                if letter not in Flags.__annotations__:
                    self.fail(f"{letter} is not a flag", match.start())
                flags = replace(flags, **{letter: value})
        return flags

    def quantifier(self, start: int, first_group: int) -> None:
        """Parses the quantifier of the atom written from `start` on."""
        sign = self.peek()
        if sign in ("*", "+", "?"):
            self.at += 1
            text, least = sign, 1 if sign == "+" else 0
        elif sign == "{":
            match = _COUNTS.match(self.source, self.at)
            if not match:
                self.fail("a number of repetitions is expected, {2} or {2,} or {2,3}")
            least, most = self.count(match[1]), self.count(match[3] or match[1])
            if most < least:
                self.fail(f"the minimum of {least} repetitions exceeds the maximum of {most}")
            if max(least, most) > _RE2_COUNT_MAX:
                self.re2_can = False
            text, self.at = match[0], match.end()
        else:
            return
        if least == 0:
            self.uncertain.update(range(first_group, self.group_count + 1))
        self.python[start:] = ["(?:", *self.python[start:], ")"] if self.is_bare(start) else self.python[start:]
        if self.accept("+"):
            self.only_python(text + "+")
        else:
            self.write(text + "?" if self.accept("?") else text)

    def count(self, digits: str) -> int:
        """Parses a repetition count without computing very long numbers."""
        number = int(digits.lstrip("0")[:11] or "0")
        if number > _COUNT_MAX:
            self.fail(f"more than {_COUNT_MAX} repetitions")
        return number

    def is_bare(self, start: int) -> bool:
        """Whether the atom is an anchor, which Python cannot repeat."""
        return self.python[start:] in (["\\A"], ["\\Z"], ["^"])

    # --- atoms --------------------------------------------------------------------------------------------------------

    def atom(self, flags: Flags) -> None:
        """Parses one atom, to which a quantifier may apply."""
        character = self.next()
        if character == "(":
            self.group(flags)
        elif character == "[":
            self.write_set(class_of(self, flags))
        elif character == "\\":
            self.escape(flags)
        elif character == ".":
            self.write_set(ALL if flags.s else complement(of_characters("\n" if flags.d else LINE_ENDS)))
        elif character == "^":
            self.line_start(flags)
        elif character == "$":
            self.line_end(flags, each=flags.m)
        elif character in "*+?":
            self.fail(f"{character} repeats nothing", self.at - 1)
        elif character == "{":
            self.fail("{ repeats nothing", self.at - 1)
        else:
            self.literal(character, flags)

    def literal(self, character: str, flags: Flags) -> None:
        """Writes a literal character."""
        points = fold_case(of_characters(character), flags)
        single = points == of_characters(character)
        self.write(re.escape(character) if single and character.isascii() else class_text(points))

    def line_start(self, flags: Flags) -> None:
        """Writes ^."""
        if not flags.m:
            self.write("\\A")
        else:
            self.only_python("(?:(?!\\Z)(?:\\A|(?<=\n)))" if flags.d else _EACH_START)

    def line_end(self, flags: Flags, each: bool) -> None:
        r"""Writes $ or \Z: matches at the end, before the last line terminator, or before each."""
        self.needs_plain_lines = True
        if flags.d:
            self.write("(?:\\Z|(?=\n))" if each else "(?:\\Z|(?=\n\\Z))", r"\z")
        else:
            self.write(_EACH_END if each else _LAST_END, r"\z")

    def group(self, flags: Flags) -> None:
        """Parses a group of any kind, after its opening parenthesis."""
        start = self.at - 1
        match = _FLAGS.match(self.source, start)
        if match:
            self.at = match.end()
            self.write("(?:")
            flags = self.apply_flags(flags, match)
        elif self.accept("?"):
            self.special_group(start)
        else:
            self.capture()
        opening = len(self.python) - 1
        bars = self.alternatives(flags)
        if not self.accept(")"):
            self.fail("a group is not closed", start)
        self.write(")")
        self.split_lookbehind(opening, bars)

    def split_lookbehind(self, opening: int, bars: list[int]) -> None:
        """Splits a look-behind into one per alternative: Python requires a fixed length in each."""
        kind = self.python[opening]
        if kind not in ("(?<=", "(?<!") or not bars:
            return
        ends = [opening, *bars, len(self.python) - 1]
        parts = ["".join(self.python[a + 1 : b]) for a, b in itertools.pairwise(ends)]
        together = "|" if kind == "(?<=" else ""
        self.python[opening:] = [f"(?:{together.join(f'{kind}{part})' for part in parts)})"]

    def special_group(self, start: int) -> None:
        """Parses the kind of a group after (?, except for flags."""
        for opening in ("=", "!", "<=", "<!", ">"):
            if self.accept(opening):
                self.only_python("(?" + opening)
                return
        match = _NAME.match(self.source, self.at)
        if not match:
            self.fail("no such kind of group", start)
        if match[1] in self.names:
            self.fail(f"a second group named {match[1]!r}", start)
        self.at = match.end()
        self.capture()
        self.names[match[1]] = self.group_count

    def capture(self) -> None:
        """Opens a capturing group."""
        self.group_count += 1
        self.write("(", self.group_count)

    def escape(self, flags: Flags) -> None:
        """Parses an escape."""
        if self.at >= len(self.source):
            self.fail("a backslash at the end", self.at - 1)
        letter = self.next()
        if letter in "123456789":
            self.back_reference(letter, flags)
            return
        anchors = {"A": ("\\A", None), "z": ("\\Z", r"\z"), "R": (_ANY_END, None)}
        if letter in anchors:
            self.write(*anchors[letter])
        elif letter == "Z":
            self.line_end(flags, each=False)
        elif letter in "bB":
            self.needs_ascii = True
            self.write(f"(?u:\\{letter})", f"\\{letter}")
        elif letter == "k":
            match = _NAME.match(self.source, self.at)
            if not match or match[1] not in self.names:
                self.fail("\\k must be followed by the name of an earlier group")
            self.at = match.end()
            self.refer(self.names[match[1]], flags)
        elif (points := escaped_set(self, letter, flags)) is not None:
            self.write_set(points)
        elif (character := escaped_character(self, letter)) is not None:
            self.literal(character, flags)
        else:
            if letter in "GX":
                raise UnsupportedPattern(f"the pattern {self.source!r} has \\{letter}, which is not supported")
            self.fail(f"\\{letter} has no meaning", self.at - 2)

    def back_reference(self, digits: str, flags: Flags) -> None:
        """Parses a group number; it includes further digits as long as the group exists."""
        group = int(digits)
        while "0" <= (self.peek() or "x") <= "9" and group * 10 + int(self.peek()) <= self.group_count:
            group = group * 10 + int(self.next())
        self.refer(group, flags)

    def refer(self, group: int, flags: Flags) -> None:
        """Writes a back-reference. A reference to a missing group never matches."""
        if group > self.group_count:
            self.only_python("(?!)")
        else:
            insensitive = "iu" if flags.u else "i"
            self.only_python(f"(?{insensitive}:\\{group})" if flags.i else f"(?:\\{group})")


def _unquote(match: re.Match[str]) -> str:
    r"""Escapes the literal characters between \Q and \E."""
    if match[1] is None:
        return match[0]
    return "".join(c if c.isalnum() or not c.isascii() else "\\" + c for c in match[1])
