"""Connected components of a graph whose edges arrive over time, kept up to date by a loop.

    millstream run examples/components/job.py --store jobs/components

Every account stores the smallest account it has received; when it receives a smaller one, it sends it to its
neighbours, and they to theirs: messages circulate in the loop until no account changes. A line is printed each time an
account moves to another group, with the number of rounds since the change started:

    account    17  joins the group of     3  after 4 rounds

The current answer is the newest line of every account. Accounts, neighbours and the messages in the loop are state:
kill the job and restart it, and no account is left in the wrong group.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from millstream.common import Types, WatermarkStrategy
from millstream.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import MapStateDescriptor, ValueStateDescriptor

LINK = Types.TUPLE([Types.LONG(), Types.LONG()])
# The receiver; a new neighbour, or -1; the smallest account the sender knows; the rounds since the change started.
MESSAGE = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG()])
MOVE = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
MOVES = OutputTag("moves", MOVE)


def link(index: int) -> tuple[int, int]:
    """Two accounts seen with one card. Ends of chains of 20 come first and their middles last."""
    place = index * 7 % 200
    return place, place - place % 20 if place % 20 == 0 else place - 1


class Group(KeyedProcessFunction):
    """One account: the smallest account of its group, and its neighbours."""

    def open(self, runtime_context: Any) -> None:
        self.smallest = runtime_context.get_state(ValueStateDescriptor("smallest", Types.LONG()))
        self.neighbours = runtime_context.get_map_state(MapStateDescriptor("neighbours", Types.LONG(), Types.BOOLEAN()))

    def process_element(self, message: tuple[int, int, int, int], ctx: Any) -> Iterable[Any]:
        own, neighbour, heard, rounds = message
        known = self.smallest.value()
        if known is None:
            known = own
            self.smallest.update(own)
        if neighbour >= 0 and not self.neighbours.contains(neighbour):
            self.neighbours.put(neighbour, True)
            yield neighbour, -1, known, 1
        if heard < known:
            self.smallest.update(heard)
            yield MOVES, (own, heard, rounds)
            for near in self.neighbours:
                yield near, -1, heard, rounds + 1


def moves(links: DataStream) -> DataStream:
    """(account, its new group, rounds), of a stream of links between accounts."""
    loop = links.flat_map(lambda ends: [(a, b, a, 0) for a, b in (ends, ends[::-1])], MESSAGE).iterate().name("news")
    told = loop.key_by(lambda message: message[0], Types.LONG()).process(Group(), MESSAGE).name("groups").uid("groups")
    loop.close_with(told)
    return told.get_side_output(MOVES)


def line(move: tuple[int, int, int]) -> str:
    account, group, rounds = move
    return f"account {account:5d}  joins the group of {group:5d}  after {rounds} round{'s' * (rounds != 1)}"


def main(records: int, rate: float) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    source = DataGeneratorSource(link, records, rate, LINK)
    links = env.from_source(source, WatermarkStrategy.no_watermarks(), "links")
    moves(links).map(line, Types.STRING()).print()
    env.execute("components")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=200, help="how many links (default %(default)s)")
    options.add_argument("--rate", type=float, default=40.0, help="links per second (default %(default)s)")
    main(**vars(options.parse_args()))
