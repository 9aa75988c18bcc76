r"""Java's regular expressions, as Flink's functions take them, for engines that are at hand here.

A pattern is read once and written twice: for RE2, which Arrow runs over a whole column, and for Python's `re`, which
has what RE2 has not (look-around, back-references, possessive quantifiers). Both mean just what Java means: classes are
computed to sets of characters, letters without case are written in both cases, `.`, `^` and `$` are spelt out. So no
flag is left to either engine. `JavaPattern.re2` is None where RE2 cannot say it; two conditions (`needs_plain_lines`,
`needs_ascii`) say for which texts alone RE2 means the same.

What Java refuses is refused with the place. What Java has and neither engine can do (`\X`, `\G`, a look-behind of many
lengths) is refused in another way, for there a NULL would be a wrong answer.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import cached_property, lru_cache

from millstream.runtime.expressions.java_pattern_classes import PatternProblem, UnsupportedPattern
from millstream.runtime.expressions.java_pattern_reader import Reader

__all__ = ["JavaPattern", "PatternProblem", "UnsupportedPattern", "java_pattern"]


@dataclass(frozen=True)
class JavaPattern:
    """One pattern. `re2` has the numbers of groups where a group that may capture opens."""

    source: str
    python: str
    re2: tuple[str | int, ...] | None
    group_count: int
    group_names: tuple[tuple[str, int], ...]
    certain_groups: frozenset[int]  # those that are part of every match
    needs_plain_lines: bool  # RE2 means the same only in texts without ends of lines
    needs_ascii: bool  # and only in texts of ASCII alone

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """For Python's `re`."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return re.compile(self.python, re.ASCII)
        except (re.error, OverflowError) as problem:
            raise UnsupportedPattern(f"the pattern {self.source!r} cannot be run here: {problem}") from None

    @cached_property
    def may_be_empty(self) -> bool:
        """Whether it can match no character at all."""
        return bool(self.compiled.fullmatch("")) or _least_width(self.python) == 0

    def for_re2(self, group: int | None = None) -> str | None:
        """The text for RE2, with no group captured, or one: as `found`. None: RE2 cannot."""
        if self.re2 is None or (group and group not in self.certain_groups):
            return None
        opened = {group: "(?P<found>"}
        text = "".join(part if isinstance(part, str) else opened.get(part, "(?:") for part in self.re2)
        return f"(?P<found>{text})" if group == 0 else text


def _least_width(pattern: str) -> int:
    from re import _parser  # type: ignore[attr-defined]

    return int(_parser.parse(pattern, re.ASCII).getwidth()[0])


@lru_cache(maxsize=1024)
def java_pattern(source: str) -> JavaPattern:
    """Read a pattern; `PatternProblem` if Java refuses it, `UnsupportedPattern` if only we do.

    >>> java_pattern(r"(?i)a[^\\d&&[0-9a-c]]+").for_re2()
    '[Aa][^0-9]+'
    """
    try:
        return _read(source)
    except RecursionError:
        raise UnsupportedPattern(f"the pattern {source[:50]!r}… is nested too deeply to be run here") from None


def _read(source: str) -> JavaPattern:
    reader = Reader(source)
    reader.read()
    pattern = JavaPattern(
        source,
        "".join(reader.python),
        tuple(reader.re2) if reader.re2_can else None,
        reader.group_count,
        tuple(reader.names.items()),
        frozenset(range(1, reader.group_count + 1)) - reader.uncertain,
        reader.needs_plain_lines,
        reader.needs_ascii,
    )
    _ = pattern.compiled, pattern.may_be_empty  # what cannot be run is refused here
    return pattern
