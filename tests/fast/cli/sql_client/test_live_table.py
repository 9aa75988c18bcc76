"""The live table: at every size, the screen shows the result as of the newest epoch."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from screens.shown_tables import rows_on
from screens.terminal import Screen

from millstream.cli.sql_client.live_rows import LiveRows
from millstream.cli.sql_client.live_table import show_live, table_lines

SIZES = ((24, 80), (40, 120), (60, 200))


def size(rows: int, columns: int) -> os.terminal_size:
    return os.terminal_size((columns, rows))


# --- the rows ---------------------------------------------------------------------------------------------------------


@st.composite
def epochs(draw: st.DrawFn) -> list[list[list[str]]]:
    """Changes of a keyed result and of plain rows, epoch by epoch: each epoch inserts rows and retracts some
    existing ones, in any order in which tasks may deliver them.
    """
    current: Counter[tuple[str, str]] = Counter()
    result = []
    for _ in range(draw(st.integers(1, 5))):
        come = draw(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("123")), max_size=6))
        there = current + Counter(come)
        retracted = draw(st.lists(st.sampled_from(sorted(there.elements())), max_size=4)) if there else []
        retracted = list((Counter(retracted) & there).elements())
        kinds = [(draw(st.sampled_from(["-U", "-D"])), row) for row in retracted]
        kinds += [(draw(st.sampled_from(["+I", "+U"])), row) for row in come]
        current = there - Counter(retracted)
        result.append([[kind, *row] for kind, row in draw(st.permutations(kinds))])
    return result


def replayed(changes: Sequence[Sequence[str]]) -> Counter[tuple[str, ...]]:
    """The slow reference: every change counted."""
    rows: Counter[tuple[str, ...]] = Counter()
    for kind, *row in changes:
        rows[tuple(row)] += 1 if kind[0] == "+" else -1
    return +rows


@given(epochs())
def test_live_rows_equal_the_replayed_changelog(changes: list[list[list[str]]]) -> None:
    rows, so_far = LiveRows(), []
    for epoch in changes:
        rows.apply(epoch)
        so_far += epoch
        assert Counter(rows.newest(1_000)) == replayed(so_far)
        assert rows.count == replayed(so_far).total()
        assert rows.newest(2) == rows.newest(1_000)[-2:]


@given(epochs(), st.integers(1, 3))
def test_evicted_rows_are_still_counted(changes: list[list[list[str]]], retained_max: int) -> None:
    # Rows are unique: after an eviction, two equal rows could not be distinguished.
    numbered = [["+I", str(n), row[1]] for n, row in enumerate(row for epoch in changes for row in epoch)]
    rows, left = LiveRows(retained_max), list(numbered)
    for change in numbered:
        rows.apply([change])
    while left:
        assert rows.count == len(left) and set(rows.newest(9)) <= {(row[1], row[2]) for row in left}
        retracted = left.pop(len(left) // 2)
        rows.apply([["-D", *retracted[1:]]])


def test_retracting_an_unknown_row_changes_nothing() -> None:
    rows = LiveRows()
    rows.apply([["+I", "a"], ["-D", "b"]])
    assert rows.count == 1 and rows.newest(5) == [("a",)]


# --- the screen over time ---------------------------------------------------------------------------------------------


@dataclass
class Story:
    """A result emitted epoch by epoch on its own clock; between epochs the terminal is resized, and after each step
    the screen is inspected.
    """

    steps: list[list[list[str]] | tuple[int, int]]
    pauses_s: tuple[float, ...] = ()  # after the first steps; a second after the others
    screen: Screen = field(default_factory=lambda: Screen(24, 80))
    output: io.StringIO = field(default_factory=io.StringIO)
    clock_s: float = 0.0
    quiet_until_s: float = 0.0
    pictures: list[tuple[Counter[tuple[str, ...]], list[tuple[str, ...]], str]] = field(default_factory=list)
    so_far: list[list[str]] = field(default_factory=list)

    def size(self) -> os.terminal_size:
        return size(self.screen.rows, self.screen.columns)

    def repaint(self) -> None:
        self.screen.feed(self.output.getvalue().replace("\n", "\r\n").encode())
        self.output.seek(0)
        self.output.truncate()

    def changes(self, timeout_s: float) -> list[list[str]] | None:
        self.repaint()
        if self.clock_s < self.quiet_until_s:
            self.clock_s += timeout_s
            return []
        self.pictures.append((replayed(self.so_far), rows_on(self.screen.lines), self.screen.text))
        if not self.steps:
            return None
        step = self.steps.pop(0)
        pause_s, self.pauses_s = (self.pauses_s[0] if self.pauses_s else 1.0), self.pauses_s[1:]
        self.quiet_until_s = self.clock_s + pause_s
        if isinstance(step, tuple):
            self.screen.resize(*step)
            return []
        self.so_far += step
        return step

    def run(self) -> Story:
        show_live(["k", "n"], self.changes, self.output, self.size, lambda: self.clock_s)
        self.repaint()
        return self


steps = st.tuples(epochs(), st.lists(st.sampled_from([*SIZES, (24, 60)]), max_size=3)).flatmap(
    lambda parts: st.permutations(parts[1]).map(lambda sizes: (parts[0], sizes))
)


@given(steps)
def test_after_each_epoch_the_screen_shows_the_complete_result_even_without_further_changes(
    parts: tuple[list[list[list[str]]], list[tuple[int, int]]],
) -> None:
    changes, sizes = parts
    mixed: list[list[list[str]] | tuple[int, int]] = []
    for at, epoch in enumerate(changes):
        mixed += [epoch, *sizes[at : at + 1]]
    story = Story(list(mixed)).run()
    assert len(story.pictures) == len(mixed) + 1
    for expected, shown, text in story.pictures:
        if expected.total() <= 17:  # the rows that fit into 24 lines
            assert shown == sorted(expected.elements()), text
        assert f"{expected.total()} row" in text


def test_epochs_in_quick_succession_are_shown_shortly_afterwards() -> None:
    numbers: list[list[list[str]] | tuple[int, int]] = [[["+I", "a", str(n)]] for n in range(4)]
    story = Story(numbers, pauses_s=(0.0, 0.1, 0.0)).run()
    assert [shown for _, shown, _ in story.pictures][-1] == [("a", "0"), ("a", "1"), ("a", "2"), ("a", "3")]
    # They are not painted one by one: a fast job does not keep the terminal busy.
    assert len({text for _, _, text in story.pictures}) == 2


def test_ctrl_c_leaves_the_newest_epoch_on_the_screen() -> None:
    output, delivered = io.StringIO(), [[["+I", "a", "1"]], [["-U", "a", "1"], ["+U", "a", "2"]]]

    def changes(timeout_s: float) -> list[list[str]]:
        if delivered:
            return delivered.pop(0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        show_live(["k", "n"], changes, output, lambda: size(24, 80), lambda: 0.0)
    screen = Screen(24, 80)
    screen.feed(output.getvalue().replace("\n", "\r\n").encode())
    assert rows_on(screen.lines) == [("a", "2")] and screen.text.endswith("ended")


# --- layout -----------------------------------------------------------------------------------------------------------


def lines_of(rows: Sequence[Sequence[str]], names: Sequence[str], rows_and_columns: tuple[int, int]) -> list[str]:
    live = LiveRows()
    live.apply(["+I", *row] for row in rows)
    return table_lines(names, live, size(*rows_and_columns), ["updated 07:00:00"])


def plain(line: str) -> str:
    for sequence in ("\x1b[1m", "\x1b[2;3m", "\x1b[0m"):
        line = line.replace(sequence, "")
    return line


@pytest.mark.parametrize("rows_and_columns", [*SIZES, (12, 40), (6, 20)])
def test_the_newest_rows_that_fit_are_shown_with_the_total_count(rows_and_columns: tuple[int, int]) -> None:
    lines = lines_of([(str(n), f"name {n}") for n in range(500)], ["id", "name"], rows_and_columns)
    assert len(lines) < rows_and_columns[0]
    shown = rows_on(list(map(plain, lines))) if rows_and_columns[0] > 6 else [("499", "name 499")]
    assert ("499", "name 499") in shown
    assert f"the newest {len(shown)} of 500 rows"[: rows_and_columns[1] - 1] in plain(lines[-1])


@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=30), min_size=1, max_size=12),
    st.integers(5, 60),
    st.integers(10, 90),
)
def test_no_line_exceeds_the_terminal_width_and_no_text_moves_the_cursor(
    texts: list[str], rows: int, columns: int
) -> None:
    lines = [plain(line) for line in lines_of([texts], [f"c{n}" for n in range(len(texts))], (rows, columns))]
    assert len(lines) < rows
    assert all(cell_len(line) < columns for line in lines), lines
    assert not [letter for line in lines for letter in line if ord(letter) < 32 or letter in "\x7f\x9b\u202e\u2028"]
    if rows > 6:
        assert len({cell_len(line) for line in lines[:-1]}) == 1, lines  # a rectangle


def test_the_widest_column_shrinks_and_truncation_is_marked() -> None:
    lines = lines_of([("12345", "x" * 100, "7")], ["id", "text", "n"], (24, 40))
    assert plain(lines[3]) == "│ 12345 │ " + "x" * 22 + "… │ 7 │"


def test_columns_that_do_not_fit_are_counted() -> None:
    wide = [("123456789", *"abcdefghij", "z" * 20)]
    lines = lines_of(wide, [f"column {n}" for n in range(12)], (24, 60))
    assert "│ 123456789 │" in plain(lines[3]) or "│ 1234567… │" in plain(lines[3])
    assert "1 row · 5 of 12 columns" in plain(lines[-1])


def test_a_terminal_without_unicode_uses_ascii_lines() -> None:
    live = LiveRows()
    live.apply([["+I", "grün", "x" * 90]])
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    lines = table_lines(["k", "t"], live, size(24, 80), ["done"], output)
    assert all(line.isascii() for line in lines) and "| gr\\xfcn |" in lines[3] and lines[3].endswith("~ |")
