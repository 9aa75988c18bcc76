"""Runs the programs of a file in sequence and prints the output of each; a title line `### name` starts one.

The programs import `pyflink`. With the argument `millstream`, that is Millstream, with its jobs in memory.
"""

import contextlib
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any


def show(table: Any) -> None:
    with table.execute().collect() as rows:
        print(sorted([str(tuple(row)) for row in rows]))


def last(table: Any) -> None:
    """The remaining rows after applying all changes."""
    present: list[str] = []
    with table.execute().collect() as rows:
        for row in rows:
            kind = row.get_row_kind().name
            (present.remove if kind in ("UPDATE_BEFORE", "DELETE") else present.append)(str(tuple(row)))
    print(sorted(present))


def run(path: str) -> None:
    programs = Path(path).read_text(encoding="utf-8").split("### ")[1:]
    for program in programs:
        name, _, code = program.partition("\n")
        print(f"### {name}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                names = {"__name__": "__main__", "show": show, "last": last, "FOLDER": folder}
                exec(compile(code, f"{name}.py", "exec"), names)
            except Exception as error:
                traceback.print_exc()
                print(f"{type(error).__name__}", flush=True)


if __name__ == "__main__":
    with contextlib.ExitStack() as stack:
        if sys.argv[2:] == ["millstream"]:
            from millstream.cli.pyflink_import import serve_pyflink
            from millstream.testing.local_jobs import jobs_in_memory

            serve_pyflink()
            stack.enter_context(jobs_in_memory())
        run(sys.argv[1])
