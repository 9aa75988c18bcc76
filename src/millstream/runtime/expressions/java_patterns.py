r"""Java's regular expressions, as used by Flink's functions, translated for the available engines.

A pattern is parsed once and translated twice: for RE2, which Arrow runs over a whole column, and for Python's `re`,
which supports constructs that RE2 lacks (look-around, back-references, possessive quantifiers). Both translations have
exactly Java's semantics: classes are computed as sets of characters, case-insensitive letters are written in both
cases, and `.`, `^` and `$` are expanded, so that no flags are passed to the engines. `JavaPattern.re2` is None if RE2
cannot express the pattern; two conditions (`needs_plain_lines`, `needs_ascii`) restrict the strings for which RE2 is
exact.

A pattern that Java rejects raises `PatternError` with the position. A pattern that Java accepts but neither engine
supports (`\X`, `\G`, a look-behind of many lengths) raises `UnsupportedPattern`, because NULL would be a wrong result.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import cached_property, lru_cache

from millstream.runtime.expressions.java_pattern_classes import PatternError, UnsupportedPattern
from millstream.runtime.expressions.java_pattern_reader import Reader

__all__ = ["JavaPattern", "PatternError", "UnsupportedPattern", "java_pattern"]


@dataclass(frozen=True)
class JavaPattern:
    """A translated pattern. `re2` holds a group's number where a capturing group may open."""

    source: str
    python: str
    re2: tuple[str | int, ...] | None
    group_count: int
    group_names: tuple[tuple[str, int], ...]
    certain_groups: frozenset[int]  # groups that participate in every match
    needs_plain_lines: bool  # RE2 is exact only for strings without line terminators
    needs_ascii: bool  # RE2 is exact only for ASCII strings

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The pattern compiled for Python's `re`."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return re.compile(self.python, re.ASCII)
        except (re.error, OverflowError) as problem:
            raise UnsupportedPattern(f"the pattern {self.source!r} is not supported: {problem}") from None

    @cached_property
    def may_be_empty(self) -> bool:
        """Whether it can match the empty string."""
        return bool(self.compiled.fullmatch("")) or _least_width(self.python) == 0

    def for_re2(self, group: int | None = None) -> str | None:
        """The pattern for RE2 without capturing groups, or with a single one, named `found`. None: not supported by
        RE2."""
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
    """Translates a pattern; raises `PatternError` if Java rejects it, `UnsupportedPattern` if only we do.

    >>> java_pattern(r"(?i)a[^\\d&&[0-9a-c]]+").for_re2()
    '[Aa][^0-9]+'
    """
    try:
        return _read(source)
    except RecursionError:
        raise UnsupportedPattern(f"the pattern {source[:50]!r}… is nested too deeply") from None


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
    _ = pattern.compiled, pattern.may_be_empty  # rejects unsupported patterns now
    return pattern
