"""A small job for clusters on which something is wrong: numbers → a sum for each key, and windows of processing time.

    python small_program.py STORE

Prints one JSON line: the sums.
"""

from __future__ import annotations

import json
import sys

from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import Collect, Script

RECORDS, KEYS = 60, 3


def main(store: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2).set_store(store)
    env.configure(Configuration().set_integer("millstream.epoch.max-records", 20))
    out = Collect()
    numbers = env.add_source(Script(range(RECORDS), type_info=Types.LONG()))
    pairs = numbers.map(lambda n: (n % KEYS, n), Types.TUPLE([Types.LONG(), Types.LONG()]))
    pairs.key_by(lambda pair: pair[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1])).sink_to(out)
    env.execute("small")
    last = {key: max(total for other, total in out.values if other == key) for key in range(KEYS)}
    print("ANSWER " + json.dumps({"sums": list(last.values())}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
