"""The demo's job as spark-submit runs it: it knows no options of ours, so the program sets its store itself.

The job's module is beside another program: it is imported, and sent to executors by its name.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "impressions"))

import job

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--output")
    options.add_argument("--records", type=int)
    options.add_argument("--rate", type=float)
    chosen = options.parse_args()
    configuration = Configuration().set_string("millstream.store", os.environ["MILLSTREAM_STORE"])
    usual = StreamExecutionEnvironment.get_execution_environment
    StreamExecutionEnvironment.get_execution_environment = lambda *_: usual(configuration)  # type: ignore[method-assign]
    job.main(chosen.output, chosen.records, chosen.rate, job.FIRST_MS)


if __name__ == "__main__":
    main()
