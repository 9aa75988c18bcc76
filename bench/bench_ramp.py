"""`make bench-ramp`: how soon a cold job reaches its best throughput.

An unmodified PyFlink program (`ramp_program.py`) with a checkpoint every second runs over a backlog, in a process and a
Spark of its own, from nothing. It is compared with the same program with a fixed epoch size, the best of several sizes.
Measured is the job, from the trigger of its first epoch to its last manifest, including cold epochs; the start of Spark
is excluded in both.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src")]

from measure import Report, at_least  # noqa: E402

from millstream.checkpoint.manifest import ManifestLog  # noqa: E402
from millstream.jobs.epochs.epoch_statistics import statistics_of  # noqa: E402
from millstream.storage import open_store  # noqa: E402

TASKS = 2
KEYS = (100, 100_000)
RECORDS, QUICK_RECORDS = 10_000_000, 1_000_000
FIXED_RECORDS = (125_000, 250_000, 500_000)
_MILLSTREAM = "import sys; from millstream.cli.main import app; sys.exit(app())"


def records_per_s(records: int, keys: int, fixed: int | None = None) -> tuple[float, list[int]]:
    """The throughput of one run from nothing, and the sizes of its epochs."""
    store = Path(tempfile.mkdtemp(prefix="millstream-bench-ramp-"))
    settings = ["-D", "millstream.retention.epochs=1000000"]
    options = ["--records", str(records), "--keys", str(keys)]
    if fixed is not None:
        settings += ["-D", f"millstream.epoch.max-records={fixed}"]
        options.append("--fixed")
    command = [
        sys.executable, "-c", _MILLSTREAM, "run", "--pyflink", "--plain", "-p", str(TASKS),
        "--store", str(store / "job"), *settings, str(FOLDER / "ramp_program.py"), "--", *options,
    ]  # fmt: skip
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise RuntimeError(f"the job failed:\n{done.stdout}")
        log = ManifestLog(open_store(str(store / "job")))
        manifests = [log.read(epoch) for epoch in log.epochs()]
    finally:
        shutil.rmtree(store, ignore_errors=True)
    epochs = [figures for figures in map(statistics_of, manifests) if figures is not None and "run_ms" in figures]
    if sum(epoch["in"] for epoch in epochs) != records:
        raise RuntimeError(f"{sum(epoch['in'] for epoch in epochs)} records were read, expected {records}")
    took_ms = manifests[-1].created_ms - epochs[0]["trigger_ms"]
    return records * 1000 / took_ms, [epoch["in"] for epoch in epochs]


def measure(report: Report, records: int, keys: int) -> None:
    """The unmodified program, against the best of those with epochs of one size."""
    fixed = {size: records_per_s(records, keys, size)[0] for size in FIXED_RECORDS}
    best = max(fixed, key=lambda size: fixed[size])
    learnt, sizes = records_per_s(records, keys)
    told = ", ".join(f"{size // 1000} k: {rate / 1000:,.0f} k/s" for size, rate in fixed.items())
    report.note(f"{keys:,} keys: learnt {learnt / 1000:,.0f} k/s; epochs of one size: {told}")
    report.note(f"{keys:,} keys: epochs of {', '.join(f'{size // 1000}' for size in sizes[:12])}, … thousand records")
    note = f"{learnt / 1000:,.0f} k/s to {fixed[best] / 1000:,.0f} k/s"
    report.add(at_least(f"ramp: {keys:,} keys, cold, to epochs of the best size", learnt / fixed[best], 0.7, note=note))


def main() -> int:
    """Measure; the exit code says whether every requirement holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON in place of lines")
    parser.add_argument("--quick", action="store_true", help="fewer records: a smoke test")
    asked = parser.parse_args()
    report = Report("ramp", as_json=asked.json, quick=asked.quick)
    for keys in KEYS:
        measure(report, QUICK_RECORDS if asked.quick else RECORDS, keys)
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
