"""Compressed input is read on where the last epoch stopped, and every read gives the bytes of the file."""

from __future__ import annotations

import csv
import gzip
import io
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common import Types
from millstream.connectors.contracts import Source, SourceContext
from millstream.connectors.files import formats, unpacking
from millstream.connectors.files.csv_records import CsvDialect, CsvRecords
from millstream.connectors.files.lines import TextLines
from millstream.connectors.files.source import FileSource
from millstream.connectors.files.unpacking import UnpackedFile, UnpackedFiles
from millstream.errors import JobFailedError

CONTEXT = SourceContext(now_ms=0, run_started_ms=0, parallelism=1)
LINES = [f"line {n} {'x' * (n % 7)}" for n in range(4_000)]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "_STEP_BYTES", 1_000)
    monkeypatch.setattr(unpacking, "_HEAD_BYTES", 100)
    monkeypatch.setattr(unpacking, "_SMALL_BYTES", 50)


class CountedFiles(UnpackedFiles):
    """Files that tell how much was unpacked in all."""

    def __init__(self, files_max: int = 16) -> None:
        super().__init__(files_max)
        self.all: set[UnpackedFile] = set()

    def _cache(self, path: str, identity: tuple[int, ...], file: UnpackedFile) -> None:
        self.all.add(file)
        super()._cache(path, identity, file)

    @property
    def unpacked_bytes(self) -> int:
        return sum(file.unpacked_bytes for file in self.all)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> CountedFiles:
    counted = CountedFiles()
    monkeypatch.setattr(formats, "FILES", counted)
    return counted


def packed(path: Path, text: str) -> str:
    path.write_bytes(gzip.compress(text.encode()))
    return str(path)


def epochs(source: Source, budget: int) -> list[list[object]]:
    """The records of every epoch, until all splits are at their end."""
    splits = source.splits(CONTEXT)
    offsets = {split.name: split.start for split in splits}
    found: list[list[object]] = []
    while not all(source.finished(split, offsets[split.name]) for split in splits):
        found.append([])
        for split in splits:
            start = offsets[split.name]
            reading = source.read(split, start, source.reach(split, start, budget, CONTEXT))
            while True:
                try:
                    batch = next(reading)
                except StopIteration as end:
                    offsets[split.name] = end.value
                    break
                found[-1].extend(batch if isinstance(batch, list) else batch.to_pylist())
    return found


def test_a_file_of_many_epochs_is_unpacked_once(tmp_path: Path, files: CountedFiles) -> None:
    text = "\n".join(LINES) + "\n"
    source = FileSource([packed(tmp_path / "a.txt.gz", text)], TextLines())
    found = epochs(source, budget=40)
    assert len(found) > 50 and [line for epoch in found for line in epoch] == LINES
    assert files.unpacked_bytes == len(text) and not files.idle  # it is let go at its end


def test_files_that_are_read_in_turn_are_each_unpacked_once_while_there_is_room(
    tmp_path: Path, files: CountedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\n".join(LINES[:1_000]) + "\n"
    paths = [packed(tmp_path / f"{name}.txt.gz", text) for name in "abc"]
    assert sum(map(len, epochs(FileSource(paths, TextLines()), budget=100))) == 3_000
    assert files.unpacked_bytes == 3 * len(text)
    few = CountedFiles(files_max=2)
    monkeypatch.setattr(formats, "FILES", few)
    assert sum(map(len, epochs(FileSource(paths, TextLines()), budget=100))) == 3_000
    assert few.unpacked_bytes > 6 * len(text) and len(few.idle) <= 2  # from the front, as without


def test_the_names_in_the_first_line_are_not_unpacked_again(tmp_path: Path, files: CountedFiles) -> None:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["n", "name"])
    writer.writerows([n, line] for n, line in enumerate(LINES))
    kind = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.LONG()])
    format = CsvRecords(kind, CsvDialect(header="names"))
    found = epochs(FileSource([packed(tmp_path / "a.csv.gz", out.getvalue())], format), budget=100)
    assert len(found) > 20 and sum(map(len, found)) == len(LINES)
    assert files.unpacked_bytes == len(out.getvalue())


def test_an_epoch_that_is_run_again_reads_the_same(tmp_path: Path, files: CountedFiles) -> None:
    source = FileSource([packed(tmp_path / "a.txt.gz", "\n".join(LINES) + "\n")], TextLines())
    [split] = source.splits(CONTEXT)
    first = [line for batch in source.read(split, 5_000, 9_000) for line in batch]
    assert [line for batch in source.read(split, 20_000, 21_000) for line in batch]
    assert [line for batch in source.read(split, 5_000, 9_000) for line in batch] == first


def test_an_abandoned_read_leaves_nothing_behind(tmp_path: Path, files: CountedFiles) -> None:
    source = FileSource([packed(tmp_path / "a.txt.gz", "\n".join(LINES) + "\n")], TextLines())
    [split] = source.splits(CONTEXT)
    reading = source.read(split, 0, 20_000)
    next(reading)
    reading.close()
    assert not files.idle


def test_a_replaced_file_is_opened_again(tmp_path: Path, files: CountedFiles) -> None:
    path = packed(tmp_path / "a.txt.gz", "\n".join(LINES) + "\n")
    source = FileSource([path], TextLines())
    [split] = source.splits(CONTEXT)
    list(source.read(split, 0, 5_000))
    noise = Random(1).randbytes(999).hex()
    other = packed(tmp_path / "other", "\n".join(line.upper() for line in LINES) + "\n" + noise)
    os.replace(other, path)
    assert files.idle == [path]
    with files.borrow(path) as file:
        file.seek(5_000)
        file.readline()
        assert file.readline().startswith(b"LINE")


@given(
    st.lists(st.binary(max_size=400), max_size=30),
    st.lists(st.tuples(st.integers(0, 3_000), st.sampled_from(["read", "readline"]), st.integers(1, 700)), max_size=12),
)
def test_every_read_returns_the_bytes_of_the_file(parts: list[bytes], reads: list[tuple[int, str, int]]) -> None:
    data = b"\n".join(parts)
    file, plain = UnpackedFile(io.BytesIO(gzip.compress(data))), io.BytesIO(data)
    for position, how, size in reads:
        file.seek(position)
        plain.seek(position)
        if how == "readline":
            assert file.readline(size) == plain.readline(size)
        else:
            some = file.read(size)
            assert some == plain.read(size)[: len(some)] and bool(some) == (position < len(data))


def test_a_line_of_any_length_is_gathered_with_a_window_of_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    windows: list[int] = []

    class Watched(UnpackedFile):
        def _window_offset(self, size: int) -> int:
            offset = super()._window_offset(size)
            windows.append(len(self._window))
            return offset

    line = b"x" * 500_000 + b"\n"
    file = Watched(io.BytesIO(gzip.compress(line + b"next\n" + line)))
    assert [len(file.readline()), file.readline(), len(file.readline())] == [500_001, b"next\n", 500_001]
    assert file.readline() == b""
    assert max(windows) <= 3 * unpacking._STEP_BYTES
    file.seek(10)
    assert (file.readline(250_000), file.readline(5)) == (b"x" * 250_000, b"x" * 5)


def test_a_compressed_file_that_grew_or_was_replaced_by_a_larger_one_is_refused_and_not_read_as_a_mixture(
    tmp_path: Path,
) -> None:
    path = packed(tmp_path / "in.gz", "\n".join(LINES))
    source = FileSource([str(tmp_path)], TextLines())
    [split] = source.splits(CONTEXT)
    assert [line for lines in source.read(split, 0, 100) for line in lines] == LINES[:10]
    packed(Path(path), "\n".join(line.upper() * 3 for line in LINES))
    with pytest.raises(JobFailedError, match="it was changed or replaced"):
        list(source.read(split, 100, 200))
