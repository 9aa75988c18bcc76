"""Writes halves-N.tar.xz: for every golden program, the store of a run that was stopped after two epochs.

    python tests/compatibility/make_halves.py N

Run it for a version whose formats are about to change, never again for the same N.
`tests/golden/test_stores_of_older_versions.py` resumes each of them.
"""

from __future__ import annotations

import io
import sys
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from programs.plain import LOOPS, PROGRAMS, numbers  # noqa: E402

from millstream.datastream import StreamExecutionEnvironment  # noqa: E402
from millstream.storage.memory import MemoryStore  # noqa: E402
from millstream.testing import Collect, run  # noqa: E402


def main(number: int) -> None:
    with tarfile.open(HERE / f"halves-{number}.tar.xz", "x:xz") as archive:
        for index, (name, program) in enumerate({**PROGRAMS, **LOOPS}.items()):
            store = f"half-{index}"
            run(partial(_add, program), parallelism=2, epoch_records=9, epochs=2, store=store)
            files = MemoryStore(store)
            for file in files.list(""):
                data = bytes(files.get(file))
                entry = tarfile.TarInfo(f"{name}/{file}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))


def _add(program: Any, env: StreamExecutionEnvironment) -> None:
    program.add(env, Collect(), numbers())


if __name__ == "__main__":
    main(int(sys.argv[1]))
