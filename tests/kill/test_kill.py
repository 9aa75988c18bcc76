"""Real kills: a running job and everything it started is killed with -9 at random moments, and started again.

What the job then has written is, after sorting, byte for byte what a run without kills writes. Moments are drawn from a
seed: `MILLSTREAM_KILL_SEEDS` says how many seeds (8 by default; `make chaos SEEDS=50` for more), and
`MILLSTREAM_KILL_FIRST_SEED` where to begin. The kills of four seeds fall on one job, one start after the other: each of
them has to be survived for its output to be right, and the job is run to its end once, not for each.
"""

from __future__ import annotations

import random
from pathlib import Path

import program
import pytest
from killing import FINISHED, SEEDS, SINKS, Strike, difference, output_of, run_to_the_end, run_until

CHAINS = [SEEDS[at : at + 4] for at in range(0, len(SEEDS), 4)]


def strikes(seeds: range) -> list[Strike]:
    """The moments of some seeds, in the order of the epochs they wait for. Most fall into epochs, some into the start
    of Spark or of the job; a seed gives one kill, or two."""
    drawn: list[tuple[int, Strike]] = []
    for seed in seeds:
        rng = random.Random(f"millstream-{seed}")
        for _ in range(2 if seed % 4 == 3 else 1):
            strike = _strike(rng)
            drawn.append((strike.phase if isinstance(strike.phase, int) else rng.randrange(1, 11), strike))
    return [strike for _, strike in sorted(drawn, key=lambda pair: pair[0])]


def _strike(rng: random.Random) -> Strike:
    where = rng.random()
    if where < 0.1:
        return Strike("imported", round(rng.random(), 3))
    if where < 0.25:
        return Strike("session", round(rng.random(), 3))
    return Strike(rng.randrange(1, 11), round(rng.random() * 1.2, 3))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_without_kills_gives_the_answer_computed_apart(clean: dict[str, bytes]) -> None:
    lines = sorted(f"{row[0]} {row[1]} {row[2]}".encode() for row in program.expected())
    rows = sorted(repr((row[0], row[1], row[2])).encode() for row in program.expected())
    totals = sorted(line.encode() for line in program.totals())
    windows = sorted(line.encode() for line in program.window_results())
    streams = sorted(line.encode() for line in program.stream_results())
    loop = sorted(line.encode() for line in program.loop_results())
    answer = {"each": lines, "many": lines, "parquet": rows, "totals": totals, "windows": windows, "streams": streams}
    answer["loop"] = loop
    for sink in SINKS:
        assert clean[sink].split(b"\n") == answer[sink], sink


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seeds", CHAINS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_a_killed_job_writes_what_an_undisturbed_one_writes(
    seeds: range, clean: dict[str, bytes], tmp_path: Path
) -> None:
    history: list[str] = []
    for strike in strikes(seeds):
        came_to = run_until(strike, tmp_path)
        history.append(f"{strike}: {came_to}")
        print(f"seeds {seeds}: {history[-1]}")
        if came_to == FINISHED:
            break
    else:
        run_to_the_end(tmp_path)
    found = output_of(tmp_path)
    for sink, records in clean.items():
        if found[sink] != records:
            raise AssertionError(difference(seeds, sink, found[sink], records, history, tmp_path))
