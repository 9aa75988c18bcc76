"""Run the random tests with new inputs, and say how to repeat what fails: `make explore`.

    python scripts/explore.py [--seed N] [--minutes N] [--times N] [what pytest takes]

`make test` gives random tests the same inputs in every run. Here they draw new ones, 100 times as many, in rounds of
1, 2, 4, … times as many: what time there is goes to all tests, and each round has a seed of its own for every test. A
failure does not stop the others; the list at the end has a command for each. The same seed draws the same again.
"""

from __future__ import annotations

import argparse
import math
import os
import secrets
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

TEST_TIMEOUT_S = 300
ENDED_WELL = (0, 1, 5)
"""How pytest ends: all passed, some failed, no test was chosen."""


def rounds(times: int) -> Iterator[int]:
    """The factors of the rounds: doubled each time, `times` in total."""
    factor = 1
    while times:
        yield min(factor, times)
        times -= min(factor, times)
        factor *= 2


def command_for(seed: int, times: int, *options: str) -> list[str]:
    """The iteration order of sets of text differs between processes, unless the hash seed is fixed."""
    python = os.path.relpath(sys.executable) if Path(sys.executable).is_relative_to(Path.cwd()) else sys.executable
    pytest = [python, "-m", "pytest", f"--explore={seed}", f"--times={times}"]
    return ["env", f"PYTHONHASHSEED={seed}", *pytest, *options]


def run_round(seed: int, times: int, until: float, failures: dict[str, int], args: list[str]) -> int:
    """Run a round without tests that failed earlier, and add new failures to `failures`, with the round's factor."""
    timeout_s = min(TEST_TIMEOUT_S * times, until - time.time() + TEST_TIMEOUT_S)
    options = ["-q", "--numprocesses=2", "--dist=worksteal", "-p", "no:cacheprovider", f"--timeout={timeout_s:.0f}"]
    options += [f"--deselect={test}" for test in failures] + ([f"--until={until:.0f}"] if until < math.inf else [])
    with tempfile.NamedTemporaryFile("r", prefix="millstream-explore-") as file:
        try:
            command = command_for(seed, times, *options, f"--failures={file.name}", *args)
            return subprocess.run(command, check=False).returncode
        finally:
            for test in file.read().splitlines():
                failures.setdefault(test, times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--seed", type=int, help="repeat the run of this seed (0 to 4294967295; drawn unless given)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after this time")
    parser.add_argument("--times", type=int, default=100, help="how many times as many examples as in `make test`")
    options, args = parser.parse_known_args()
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    until = time.time() + 60 * options.minutes
    if not any(Path(arg.split("::")[0]).exists() for arg in args):
        args.append("tests")
    failures: dict[str, int] = {}
    accident = None
    try:
        for times in rounds(options.times):
            print(f"\nexplore: seed {seed}, {times} times the examples", flush=True)
            returncode = run_round(seed, times, until, failures, args)
            if returncode not in ENDED_WELL:
                accident = f"pytest ended with {returncode} in the round of {times} times the examples"
                break
            if time.time() > until:
                break
    except KeyboardInterrupt:
        print("\nexplore: stopped")
    print(f"\nexplore: seed {seed}: {len(failures)} random tests failed")
    for test, times in failures.items():
        print(f"  {test}\n    {shlex.join(command_for(seed, times, '--timeout=0', test))}")
    if accident:
        print(f"explore: {accident}", file=sys.stderr)
    return 1 if failures or accident else 0


if __name__ == "__main__":
    sys.exit(main())
