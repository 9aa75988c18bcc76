"""Creates the store of a SQL job that stopped after two epochs, in the format of the version that runs it.

    python tests/compatibility/make_sql_store.py 2

writes `sql-store-2.zip`. Number 1 is of a version that did not store the meanings of operators' state. Existing stores
are never rewritten: create one under the next number when the stored data of a query changes.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from programs.changed_queries import STORED, program

from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, run

HERE = Path(__file__).resolve().parent


def make(number: int) -> None:
    """Write the store of this version under `number`."""
    run(program(STORED, Collect()), store="stored", epoch_records=9, epochs=2, job_name="stored")
    store = MemoryStore("stored")
    with zipfile.ZipFile(HERE / f"sql-store-{number}.zip", "x", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in store.list(""):
            if not name.startswith("logs/"):
                archive.writestr(zipfile.ZipInfo(name), store.get(name), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    make(int(sys.argv[1]))
