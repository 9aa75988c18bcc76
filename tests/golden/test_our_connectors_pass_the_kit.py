"""Our own sources and sinks pass the public connector kit (those that need servers: tests/connectors)."""

from __future__ import annotations

import socket
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers.server_process import free_port

from millstream.common import Encoder
from millstream.common.typeinfo import Types
from millstream.connectors.direct_sinks import DiscardingSink
from millstream.connectors.hybrid import HybridSource
from millstream.connectors.print_sink import PrintSink
from millstream.connectors.program_sources import CollectionSource, DataGeneratorSource, NumberSequenceSource
from millstream.connectors.socket import SocketSource
from millstream.datastream.connectors.file_system import (
    FileSink,
    FileSource,
    RollingPolicy,
    StreamFormat,
)
from millstream.datastream.formats.parquet import ParquetColumnarRowInputFormat
from millstream.errors import ProgramError
from millstream.testing import Collect, Script
from millstream.testing.connectors import Broken, check_sink, check_source

LINES = [f"line {n} " + "x" * (n % 7) for n in range(60)]
TEXT_OF_NUMBERS = [str(n) for n in range(20)]


@pytest.mark.parametrize(
    "source",
    [
        CollectionSource(list(range(30)), Types.LONG()),
        CollectionSource([None, float("nan"), "ä", (1, [2]), {"a": 1}, b"\xff"] * 3),
        DataGeneratorSource(lambda n: n * n, 40, type_info=Types.LONG()),
        NumberSequenceSource(-5, 70),
        Script([1, 2, 3], [4, 5], [6, 7, 8]),
    ],
    ids=["collection", "strange values", "generator", "numbers", "script"],
)
def test_sources_of_the_program_itself(source: Any) -> None:
    check_source(source)


def test_sources_that_follow_one_another(tmp_path: Path) -> None:
    numbers = [NumberSequenceSource(1, 20), NumberSequenceSource(21, 30), NumberSequenceSource(31, 45)]
    report = check_source(HybridSource(numbers), expected=list(range(1, 46)))
    assert report.check("end").verdict == report.check("job").verdict == "passed"
    texts = [text_source(str(text_files(tmp_path))), CollectionSource(["a", "b", "c"] * 5, Types.STRING())]
    stages = [source._connector if isinstance(source, FileSource) else source for source in texts]
    check_source(HybridSource(stages), expected=[*LINES, *["a", "b", "c"] * 5])


def text_files(folder: Path) -> Path:
    """Nested, one empty, one without a last newline."""
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.txt").write_text("".join(line + "\n" for line in LINES[:40]))
    (folder / "deep" / "empty.txt").write_text("")
    (folder / "deep" / "er" / "b.txt").write_text("\n".join(LINES[40:]))
    return folder


def test_files_of_text(tmp_path: Path) -> None:
    folder = str(text_files(tmp_path))
    missing = Broken("a missing folder", lambda: text_source(str(tmp_path / "nosuch")), says=["nosuch"])
    check_source(text_source(folder), expected=LINES, broken=[missing])


def text_source(path: str) -> FileSource:
    return FileSource.for_record_stream_format(StreamFormat.text_line_format(), path).build()


def test_a_socket_without_a_listener_is_reported_by_address() -> None:
    port = free_port()
    silent = Broken("nobody who listens", lambda: SocketSource("127.0.0.1", port), says=["127.0.0.1", str(port)])
    check_source(Script([1, 2]), broken=[silent])
    with socket.create_server(("127.0.0.1", 0)), pytest.raises(ProgramError, match="port is 0"):
        SocketSource("127.0.0.1", 0)


@pytest.mark.parametrize("policy", ["each checkpoint", "large files"])
def test_files_of_rows(policy: str, tmp_path: Path) -> None:
    rolling = (
        RollingPolicy.on_checkpoint_rolling_policy()
        if policy == "each checkpoint"
        else RollingPolicy.default_rolling_policy()
    )

    def make(place: str) -> FileSink:
        sink = FileSink.for_row_format(str(tmp_path / place), Encoder.simple_string_encoder())
        return sink.with_rolling_policy(rolling).build()

    def read(place: str) -> list[str]:
        parts = [path for path in (tmp_path / place).rglob("*") if path.is_file() and not _is_hidden(path, tmp_path)]
        return [line for path in parts for line in path.read_text().splitlines()]

    check_sink(make, read, records=TEXT_OF_NUMBERS, type_info=Types.STRING())


def _is_hidden(path: Path, root: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.relative_to(root).parts)


def test_print_is_at_least_once() -> None:
    printed: dict[str, list[str]] = defaultdict(list)

    def make(place: str) -> PrintSink:
        return PrintSink().printing_to(lambda text: printed[place].extend(text.splitlines()))

    def read(place: str) -> list[str]:
        return [line.split("> ")[-1] for line in printed[place]]

    left_out = {"job": "what it is to print to does not travel", "crash-process": "it prints in this process"}
    report = check_sink(make, read, records=TEXT_OF_NUMBERS, type_info=Types.STRING(), left_out=left_out)
    assert "(at-least-once)" in str(report)


def test_collect_of_tests_itself() -> None:
    sinks: dict[str, Collect] = {}
    left_out = {
        "crash-process": "it collects in this process",
        "restore": "it collects for one job",
        "job": "run() clears it before a job begins",
    }
    make = lambda place: sinks.setdefault(place, Collect())  # noqa: E731
    check_sink(make, lambda place: make(place).values, records=list(range(20)), left_out=left_out)


def test_discarding_publishes_nothing() -> None:
    check_sink(lambda place: DiscardingSink(), lambda place: [], records=list(range(20)), expected=lambda written: [])


def test_parquet_files_written_by_others(tmp_path: Path) -> None:
    table = pa.table({"n": list(range(200)), "s": [str(n) for n in range(200)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    row_type = Types.ROW_NAMED(["n", "s"], [Types.LONG(), Types.STRING()])
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(row_type), str(tmp_path)).build()
    report = check_source(source, ranges_max=50)
    assert "200 records" in report.check("reads").detail
