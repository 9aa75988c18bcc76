"""Hostile JSON: whether a text is valid depends on the text alone, and no text takes long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from millstream.runtime.expressions.json_paths import json_path
from millstream.runtime.expressions.json_text import JsonError, json_text, read_json, with_extended_recursion
from millstream.runtime.expressions.variants import member, parse_variant

Reader = Callable[[str], object]


@pytest.fixture(autouse=True)
def low_bound() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)
    yield
    sys.setrecursionlimit(before)


def run_deeper(levels: int, act: Callable[[], object]) -> object:
    """The result of `act` on a stack that is deeper by this number of levels."""
    return run_deeper(levels - 1, act) if levels else act()


READERS: list[Reader] = [lambda text: parse_variant(text, False), lambda text: json_text(read_json(text))]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("frames", [0, 300, 600])
def test_a_thousand_levels_are_read_at_any_depth_of_the_callers_stack(read: Reader, frames: int) -> None:
    for text in ("[" * 1_000 + "]" * 1_000, '{"a":' * 1_000 + "1" + "}" * 1_000):
        assert run_deeper(frames, lambda text=text: read(text)) == text  # type: ignore[misc]
        with pytest.raises(JsonError, match="deeper than 1,000 levels"):
            run_deeper(frames, lambda text=text: read(f"[{text}]"))  # type: ignore[misc]


def test_the_recursion_limit_is_restored_after_a_deep_text() -> None:
    for read in READERS:
        read("[" * 1_000 + "]" * 1_000)
        assert sys.getrecursionlimit() == 1_000
        with pytest.raises(JsonError):
            run_deeper(900, lambda read=read: read("[" * 1_000 + "]" * 999))  # type: ignore[misc]
        assert sys.getrecursionlimit() == 1_000


@pytest.mark.parametrize("text", ["$..a", "$..*", "$..[?(@.a == 1)]"])
def test_a_path_of_a_thousand_levels_is_followed(text: str) -> None:
    document = read_json('{"a":' * 1_000 + "1" + "}" * 1_000)
    assert run_deeper(600, lambda: len(json_path(text).find(document)))
    assert sys.getrecursionlimit() == 1_000


def test_the_recursion_limit_is_restored_by_the_last_of_several_threads() -> None:
    all_inside = threading.Barrier(4)

    def act(first: list[bool]) -> int:
        if first.pop():
            raise RecursionError
        all_inside.wait(10)
        return sys.getrecursionlimit()

    with ThreadPoolExecutor(4) as pool:
        bounds = [
            each.result() for each in [pool.submit(with_extended_recursion, act, [False, True]) for _ in range(4)]
        ]
    assert min(bounds) > 1_000
    assert sys.getrecursionlimit() == 1_000


def test_a_recursion_limit_set_concurrently_by_the_program_is_retained() -> None:
    def act(first: list[bool]) -> None:
        if first.pop():
            raise RecursionError
        sys.setrecursionlimit(3_000)

    with_extended_recursion(act, [False, True])
    assert sys.getrecursionlimit() == 3_000


def test_sequential_brackets_and_brackets_in_texts_are_not_nesting() -> None:
    for text in ("[" + ",".join(["[]"] * 3_000) + "]", '["' + r"[{\"\\" * 3_000 + '"]'):
        assert parse_variant(text, False) == text


def test_a_deep_member_of_a_variant_is_read() -> None:
    assert member('{"a":' + "[" * 900 + "]" * 900 + "}", "a") == "[" * 900 + "]" * 900


def test_a_hundred_thousand_levels_are_an_error_of_the_text() -> None:
    for text in ("[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000, '["' + '\\"' * 100_000 + "[" * 2_000):
        with pytest.raises(JsonError):
            parse_variant(text, False)


@pytest.mark.slow
@pytest.mark.timeout(20)
def test_many_digits_and_many_keys_take_linear_time() -> None:
    assert parse_variant("0." + "0" * 1_000_000 + "1", False) == "0.0"
    assert parse_variant("1." + "01" * 500_000, False) == "1.0101010101010102"
    keys = ",".join(f'"k{number}":1' for number in range(200_000))
    with pytest.raises(JsonError, match="'k199999' occurs twice"):
        parse_variant(f'{{{keys},"k199999":2}}', False)


def test_half_a_surrogate_pair_becomes_a_question_mark_in_keys_and_values() -> None:
    assert parse_variant('{"\\ud800":"\\ud800"}', False) == '{"?":"?"}'
