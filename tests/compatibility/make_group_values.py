"""Writes group-values-N.zip: the store of query N over a changing table, stopped half-way.

    python tests/compatibility/make_group_values.py N

Run it for a version whose rows of groups are about to change, never again for the same N.
`tests/golden/test_values_of_large_groups.py` resumes each of them.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "golden"))

from group_values_of_older_versions import EPOCHS_BEFORE, run_query  # noqa: E402

from millstream.storage.memory import MemoryStore  # noqa: E402
from millstream.testing import Collect  # noqa: E402


def main(number: int) -> None:
    run_query(number, "group-values", Collect(), epochs=EPOCHS_BEFORE[number])
    files = MemoryStore("group-values")
    with zipfile.ZipFile(HERE / f"group-values-{number}.zip", "x", zipfile.ZIP_DEFLATED) as archive:
        for file in files.list(""):
            archive.writestr(file, bytes(files.get(file)))


if __name__ == "__main__":
    main(int(sys.argv[1]))
