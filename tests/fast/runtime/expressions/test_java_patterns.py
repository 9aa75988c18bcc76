"""Java's patterns have Java's meaning here, and are rejected where Java rejects them."""

from __future__ import annotations

import pytest

from millstream.runtime.expressions.java_patterns import PatternError, UnsupportedPattern, java_pattern

MEANINGS = (  # pattern, matching texts, other texts
    (r"a.c", ["abc", "a😀c"], ["a\nc", "a\u2028c"]),
    (r"b$", ["ab", "ab\n", "ab\r\n", "ab\u2028"], ["ab\n\n", "abc"]),
    (r"b\z", ["ab"], ["ab\n"]),
    (r"(?m)^b$", ["a\rb\nc"], ["ab", "a b"]),
    (r"(?d)a$", ["a\n"], ["a\r"]),
    (r"[a-z&&[^aeiou]]", ["b"], ["a", "A"]),
    (r"[a-d[m-p]]", ["n"], ["f"]),
    (r"[^a-c&&b-z]", ["a", "d"], ["b"]),
    (r"(?i)[^a]", ["b"], ["a", "A"]),
    (r"(?i)ä", ["ä"], ["Ä"]),
    (r"(?iu)ä", ["Ä"], ["a"]),
    (r"\p{Alpha}", ["a"], ["ä"]),
    (r"\p{L}", ["ä", "日"], ["1"]),
    (r"\p{IsGreek}", ["α"], ["a"]),
    (r"\w", ["_"], ["ä"]),
    (r"\h", ["\u3000"], ["\n"]),
    (r"\R", ["\u0085"], [" "]),
    (r"\Qa.b\E", ["a.b"], ["axb"]),
    (r"(a)\1", ["aa"], ["ab"]),
    (r"(?<x>a)\k<x>", ["aa"], ["a"]),
    (r"a++a", [], ["aaa"]),
    (r"(?>a+)b", ["aab"], ["aa"]),
    (r"(?<!a)b", ["b", "cb"], ["ab"]),
    (r"(?<=a|bc)d", ["ad", "bcd"], ["cd"]),
    (r"(?<!a|bc)d", ["d", "cd"], ["ad", "bcd"]),
    (r"\x{1F600}|\u0061|\0142", ["😀", "a", "b"], ["c"]),
    (r"(?x) a b # c", ["ab"], ["a b"]),
    (r"a(?i)b|c", ["aB", "C"], ["AB"]),
    (r"[]a]", ["]", "a"], ["b"]),
)


@pytest.mark.parametrize(("source", "fitting", "others"), MEANINGS)
def test_a_pattern_matches_as_in_java(source: str, fitting: list[str], others: list[str]) -> None:
    pattern = java_pattern(source).compiled
    assert [text for text in fitting if not pattern.search(text)] == []
    assert [text for text in others if pattern.search(text)] == []


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("(", 1),
        ("a**", 3),
        ("[a", 1),
        ("a{,2}", 2),
        ("a{2,1}", 2),
        ("a{2147483648}", 2),
        ("a{1," + "9" * 5_000 + "}", 2),
        ("[z-a]", 3),
        (r"\y", 1),
        ("(?z)a", 1),
        ("a)", 2),
        ("\\", 1),
    ],
)
def test_patterns_that_java_rejects_are_rejected_with_their_position(source: str, place: int) -> None:
    with pytest.raises(PatternError) as caught:
        java_pattern(source)
    assert f"{source!r}" in str(caught.value)
    assert f"at character {place}" in str(caught.value)


@pytest.mark.parametrize("source", [r"\X", r"\Ga", r"(?<=a{1,2})b"])
def test_a_pattern_unsupported_by_every_engine_raises_instead_of_matching_nothing(source: str) -> None:
    with pytest.raises(UnsupportedPattern):
        java_pattern(source)


def test_re2_runs_only_patterns_with_the_same_meaning() -> None:
    assert java_pattern(r"(a)(b)?").for_re2(1) == "(?P<found>a)(?:b)?"
    assert (
        java_pattern(r"(a)(b)?").for_re2(2) is None
    )  # a group that did not participate in the match is NULL, not empty
    assert java_pattern(r"a(?=b)").for_re2() is None
    assert java_pattern(r"a$").needs_plain_lines
    assert java_pattern(r"\ba").needs_ascii


def test_a_pattern_too_large_for_re2_runs_in_python() -> None:
    from oracles.text_calls import STRING, bound, computed

    source = r"(?:\p{L}{500}){3}|ab"
    call = bound("REGEXP", [STRING, STRING], {})
    assert computed(call, [("xab", source), ("é", source)], [1]) == [True, False]
