"""Writes forgetting-N.zip: the store of query N with a time-to-live over a changing table, stopped half-way.

    python tests/compatibility/make_ttl_stores.py N

Run it for a version whose stored rows are about to change, never again for the same N.
`tests/golden/test_ttl_of_older_versions.py` resumes each of them.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "golden"))

from ttl_of_older_versions import EPOCHS_BEFORE, run_query  # noqa: E402

from millstream.storage.memory import MemoryStore  # noqa: E402
from millstream.testing import Collect  # noqa: E402


def main(number: int) -> None:
    run_query(number, "forgetting", Collect(), epochs=EPOCHS_BEFORE)
    files = MemoryStore("forgetting")
    with zipfile.ZipFile(HERE / f"forgetting-{number}.zip", "x", zipfile.ZIP_DEFLATED) as archive:
        for file in files.list(""):
            if not file.startswith("logs/"):
                archive.writestr(zipfile.ZipInfo(file), bytes(files.get(file)), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main(int(sys.argv[1]))
