"""A program whose functions use an installed package that executors do not have. Run by test_programs_on_a_cluster.

python packed_program.py STORE
"""

from __future__ import annotations

import json
import sys

from sortedcontainers import SortedList

from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import Collect, Script


def main(store: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2).set_store(store)
    out = Collect()
    words = env.add_source(Script(["mill", "stream"], type_info=Types.STRING()))
    words.map(lambda word: "".join(SortedList(word)), Types.STRING()).sink_to(out)
    env.execute("packed")
    print("ANSWER " + json.dumps({"words": sorted(out.values)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
