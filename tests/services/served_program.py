"""A real job with states of every kind, and its query server: in this process, or in a child whose memory can be
measured.

`python served_program.py '{"header_timeout_s": 1}'` serves with those limits until its input ends, and prints its
address.
"""

from __future__ import annotations

import json
import sys
from itertools import count
from typing import Any

from programs.queryable import NAME, PAIR, Keeps, ms, record, stamped

from millstream import query
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream import aggregates as agg
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.query.server import Limits, QueryServer, ServerSettings
from millstream.testing import EPOCH, Collect, Script, run

STORES = count()


def _build(env: StreamExecutionEnvironment) -> None:
    pairs = env.add_source(Script([("a", 1), ("b", 2), EPOCH, ("a", 3), EPOCH, ("é", 5)], type_info=PAIR))
    pairs.key_by(lambda value: value[0], Types.STRING()).process(Keeps()).uid("keeper").sink_to(Collect())
    numbered = pairs.key_by(lambda value: value[1], Types.LONG())
    numbered.as_queryable_state("by-number")
    pairs.key_by(lambda value: value).as_queryable_state("by-pair")
    windows = stamped(env, [record("a", 5, 2), EPOCH, record("a", 30, 1)]).key_by("key")
    hours = windows.window(TumblingEventTimeWindows.of(ms(20))).queryable(NAME)
    hours.aggregate(agg.Aggregates(n=agg.sum("n"), mean=agg.avg("n"))).sink_to(Collect())


def served() -> query.JobView:
    """The job, after all its epochs."""
    store = f"served-program-{next(STORES)}"
    run(_build, store=store, parallelism=2)
    return query.open(f"memory://{store}")


def main() -> None:
    limits: dict[str, Any] = json.loads(sys.argv[1])
    # All key groups, but explicitly: so ownership of keys is checked.
    settings = ServerSettings(port=0, flight_port=0, key_groups=range(128), limits=Limits(**limits))
    with QueryServer(served(), settings) as server:
        print(json.dumps({"url": server.url, "flight_url": server.flight_url}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
