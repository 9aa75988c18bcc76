"""Every program of the tests in one job. Run by test_programs_on_a_cluster, as a user would run it.

Prints one JSON line: which programs gave another answer than they should.
"""

from __future__ import annotations

import json

from beside_the_program import EPOCH_RECORDS
from programs.plain import PROGRAMS, multiset

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import Collect


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(3)
    env.configure(Configuration().set_integer("millstream.epoch.max-records", EPOCH_RECORDS * len(PROGRAMS)))
    outs = {name: Collect(name) for name in PROGRAMS}
    for name, out in outs.items():
        PROGRAMS[name].add(env, out)
    env.execute("all programs")
    wrong = [name for name, out in outs.items() if multiset(out.values) != multiset(PROGRAMS[name].golden(3))]
    print("ANSWER " + json.dumps({"programs": len(outs), "wrong": wrong}), flush=True)


if __name__ == "__main__":
    main()
