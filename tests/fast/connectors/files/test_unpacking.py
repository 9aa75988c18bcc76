"""Compressed input is decompressed onwards from where the last epoch stopped; every read returns the bytes of the
file.
"""

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
    """Open files that count the decompressed bytes in total."""

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


def compressed(path: Path, text: str) -> str:
    path.write_bytes(gzip.compress(text.encode()))
    return str(path)


def epochs(source: Source, budget: int) -> list[list[object]]:
    """The records of every epoch, until all splits are finished."""
    splits = source.splits(CONTEXT)
    offsets = {split.name: split.start for split in splits}
    records_by_epoch: list[list[object]] = []
    while not all(source.finished(split, offsets[split.name]) for split in splits):
        records_by_epoch.append([])
        for split in splits:
            start = offsets[split.name]
            reading = source.read(split, start, source.reach(split, start, budget, CONTEXT))
            while True:
                try:
                    batch = next(reading)
                except StopIteration as end:
                    offsets[split.name] = end.value
                    break
                records_by_epoch[-1].extend(batch if isinstance(batch, list) else batch.to_pylist())
    return records_by_epoch


def test_a_file_of_many_epochs_is_unpacked_once(tmp_path: Path, files: CountedFiles) -> None:
    text = "\n".join(LINES) + "\n"
    source = FileSource([compressed(tmp_path / "a.txt.gz", text)], TextLines())
    records_by_epoch = epochs(source, budget=40)
    assert len(records_by_epoch) > 50 and [line for epoch in records_by_epoch for line in epoch] == LINES
    assert files.unpacked_bytes == len(text) and not files.idle  # released at its end


def test_files_read_in_turn_are_each_unpacked_once_while_the_cache_has_room(
    tmp_path: Path, files: CountedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\n".join(LINES[:1_000]) + "\n"
    paths = [compressed(tmp_path / f"{name}.txt.gz", text) for name in "abc"]
    assert sum(map(len, epochs(FileSource(paths, TextLines()), budget=100))) == 3_000
    assert files.unpacked_bytes == 3 * len(text)
    few = CountedFiles(files_max=2)
    monkeypatch.setattr(formats, "FILES", few)
    assert sum(map(len, epochs(FileSource(paths, TextLines()), budget=100))) == 3_000
    assert few.unpacked_bytes > 6 * len(text) and len(few.idle) <= 2  # from the start, as without the cache


def test_the_header_line_is_not_unpacked_again(tmp_path: Path, files: CountedFiles) -> None:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["n", "name"])
    writer.writerows([n, line] for n, line in enumerate(LINES))
    kind = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.LONG()])
    format = CsvRecords(kind, CsvDialect(header="names"))
    records_by_epoch = epochs(FileSource([compressed(tmp_path / "a.csv.gz", out.getvalue())], format), budget=100)
    assert len(records_by_epoch) > 20 and sum(map(len, records_by_epoch)) == len(LINES)
    assert files.unpacked_bytes == len(out.getvalue())


def test_a_replayed_epoch_reads_the_same_records(tmp_path: Path, files: CountedFiles) -> None:
    source = FileSource([compressed(tmp_path / "a.txt.gz", "\n".join(LINES) + "\n")], TextLines())
    [split] = source.splits(CONTEXT)
    first = [line for batch in source.read(split, 5_000, 9_000) for line in batch]
    assert [line for batch in source.read(split, 20_000, 21_000) for line in batch]
    assert [line for batch in source.read(split, 5_000, 9_000) for line in batch] == first


def test_an_abandoned_read_leaves_no_open_file(tmp_path: Path, files: CountedFiles) -> None:
    source = FileSource([compressed(tmp_path / "a.txt.gz", "\n".join(LINES) + "\n")], TextLines())
    [split] = source.splits(CONTEXT)
    reading = source.read(split, 0, 20_000)
    next(reading)
    reading.close()
    assert not files.idle


def test_a_replaced_file_is_opened_again(tmp_path: Path, files: CountedFiles) -> None:
    path = compressed(tmp_path / "a.txt.gz", "\n".join(LINES) + "\n")
    source = FileSource([path], TextLines())
    [split] = source.splits(CONTEXT)
    list(source.read(split, 0, 5_000))
    noise = Random(1).randbytes(999).hex()
    other = compressed(tmp_path / "other", "\n".join(line.upper() for line in LINES) + "\n" + noise)
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


def test_a_line_of_any_length_is_assembled_with_a_few_read_steps(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_compressed_file_that_grew_or_was_replaced_is_rejected_and_never_read_as_a_mixture(
    tmp_path: Path,
) -> None:
    path = compressed(tmp_path / "in.gz", "\n".join(LINES))
    source = FileSource([str(tmp_path)], TextLines())
    [split] = source.splits(CONTEXT)
    assert [line for lines in source.read(split, 0, 100) for line in lines] == LINES[:10]
    compressed(Path(path), "\n".join(line.upper() * 3 for line in LINES))
    with pytest.raises(JobFailedError, match="it was changed or replaced"):
        list(source.read(split, 100, 200))
