"""How many records are worked on at a time by functions that give any number of results of each.

Results are Python values until they are handed on, so it is their bytes that count, not the number of records they came
from. Nobody knows them beforehand: the first piece is small, and each one tells how large the next may be. Results of a
single record are never cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.records.batch import Batch

__all__ = ["Pieces"]

_FIRST_RECORDS = 256
# So many times as large as the last one a piece may be, when its results were small.
_GROWTH = 8
_RESULT_BYTES = 16 << 20


class Pieces:
    """The size of the next piece: `records` of input, at most `records_max`.

    >>> pieces = Pieces(records_max=100_000)
    >>> pieces.learn(pieces.records, result_bytes=1_000)
    >>> pieces.records
    2048
    >>> pieces.learn(pieces.records, result_bytes=1 << 30)
    >>> pieces.records
    32
    """

    __slots__ = ("_records_max", "records")

    def __init__(self, records_max: int) -> None:
        self._records_max = records_max
        self.records = min(_FIRST_RECORDS, records_max)

    def learn(self, records: int, result_bytes: int) -> None:
        """A piece of so many records gave so many bytes."""
        affordable = records * _RESULT_BYTES // max(result_bytes, 1)
        self.records = max(1, min(affordable, _GROWTH * self.records, self._records_max))

    def of(self, batch: Batch) -> Iterator[Batch]:
        """A batch in pieces; before each, what came of the last one may have been learnt."""
        start = 0
        while start < len(batch):
            size = min(self.records, len(batch) - start)
            yield batch if size == len(batch) else batch.slice(start, size)
            start += size
