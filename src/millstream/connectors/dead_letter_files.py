"""Writes refused rows to files for people and programs: once per commit, also after crashes.

    {folder}/{commit}.jsonl       a line of JSON for each row: job, sink, epoch, place, reason, and the row
    {folder}/{commit}-0.arrow     the same rows in the same order, with their types (one file for each schema)

The name of a commit is never reused, and the content under it follows from the store alone. So
writing it again, after a crash, changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millstream.connectors.contracts import CommitId, Json
from millstream.connectors.refused_rows import RefusedRow, json_line, rows_at
from millstream.connectors.staged_columns import all_staged_columns
from millstream.storage.patience import with_patience
from millstream.storage.store import Store, open_store

__all__ = ["write_dead_letters"]


def write_dead_letters(
    folder: str, commit: CommitId, publish: Sequence[Json], rows: Sequence[RefusedRow], store: Store
) -> list[str]:
    """Write these rows of the published items; returns the names of the files."""
    target = with_patience(open_store(folder))
    lines: list[str] = []
    tables: dict[str, list[pa.RecordBatch]] = {}
    for item in sorted({row.item for row in rows}):
        reasons = {row.row: row.reason for row in rows if row.item == item}
        numbers = iter(sorted(reasons))
        for batch in rows_at(all_staged_columns(publish[item], store), list(reasons)):
            tables.setdefault(str(batch.schema), []).append(batch)
            for record, number in zip(batch.to_pylist(), numbers, strict=False):
                fields = {"job": commit.job, "sink": commit.sink, "epoch": commit.epoch, "item": item, "row": number}
                lines.append(json_line({**fields, "reason": reasons[number], "record": record}))
    files = {f"{commit}.jsonl": "".join(f"{line}\n" for line in lines).encode()}
    files |= {f"{commit}-{number}.arrow": _arrow_file(batches) for number, batches in enumerate(tables.values())}
    for name, data in files.items():
        target.put(name, data)
    return list(files)


def _arrow_file(batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())
