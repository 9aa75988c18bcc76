"""Whose batches an input in a job's store is made of: its own series, and those it goes on from.

Whoever stores batches numbers them, and begins anew where it has no past: a job that was forked, or restored into
another store, would meet the numbers of the job it came from. So numbers are counted within a **series**, whose token
is drawn when an input is first stored in a job's store, and is part of every name. A job on top of another one inherits
that one's batches as they stand at its first start, and goes on counting from there.

    input/{name}/series.json    {"series": "3f9a2c", "inherits": [{"store": "jobs/a", "series": "…", "through": 7}]}

An input that was stored before there were series has the token "" and no such file.
"""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import asdict, dataclass

from millstream.errors import StoreDamagedError
from millstream.storage.layered import LayeredStore
from millstream.storage.names import safe
from millstream.storage.store import Store

__all__ = [
    "BatchSeries",
    "InheritedBatches",
    "batch_folder",
    "batch_of_split",
    "consumed_through",
    "input_folder",
    "marked_batches",
    "marker_name",
    "new_series",
    "save_consumed",
    "save_series",
    "scratch_folder",
    "series_of",
    "split_name",
]

_SPLIT = re.compile(r"(?:([0-9a-f]+)-)?(\d{12,})-\d{5,}")
_MARKER = re.compile(r"(?:([0-9a-f]+)-)?(\d{12,})\.json")


@dataclass(frozen=True)
class InheritedBatches:
    """The batches of another store up to number `through`."""

    store: str
    series: str
    through: int


@dataclass(frozen=True)
class BatchSeries:
    """The batches of one input: those it inherits, oldest first, and its own, which are counted on from there."""

    series: str
    inherits: tuple[InheritedBatches, ...] = ()

    @property
    def inherited_through(self) -> int:
        return max((past.through for past in self.inherits), default=-1)

    @property
    def tokens(self) -> frozenset[str]:
        """Every series whose batches it may name."""
        return frozenset((self.series, *(past.series for past in self.inherits)))


def input_folder(name: str) -> str:
    """Everything that a store holds of the input `name`."""
    return f"input/{safe(name)}"


def numbered(series: str, number: int) -> str:
    """A batch by its number within its series.

    >>> numbered("3f9a", 7), numbered("", 7)
    ('3f9a-000000000007', '000000000007')
    """
    return f"{series}-{number:012d}" if series else f"{number:012d}"


def batch_folder(name: str, series: str, number: int) -> str:
    """Where the files of a batch are."""
    return f"{input_folder(name)}/batch-{numbered(series, number)}"


def scratch_folder(name: str, series: str, scratch: str) -> str:
    """A folder for whoever writes the batches of a series.

    >>> scratch_folder("in", "3f9a", "checkpoint"), scratch_folder("in", "", "checkpoint")
    ('input/in/checkpoint-3f9a', 'input/in/checkpoint')
    """
    return f"{input_folder(name)}/{scratch}-{series}" if series else f"{input_folder(name)}/{scratch}"


def marker_name(name: str, series: str, number: int) -> str:
    """The list of a batch's files, which is there when the batch is complete."""
    return f"{input_folder(name)}/markers/{numbered(series, number)}.json"


def split_name(series: str, number: int, at: int) -> str:
    """The split of the file at this place of a batch's list."""
    return f"{numbered(series, number)}-{at:05d}"


def batch_of_split(split: str) -> tuple[str, int] | None:
    """The series and number of the batch whose split this is; None for any other name.

    >>> batch_of_split("3f9a-000000000007-00001"), batch_of_split("000000000007-00001"), batch_of_split("even")
    (('3f9a', 7), ('', 7), None)
    """
    match = _SPLIT.fullmatch(split)
    return (match.group(1) or "", int(match.group(2))) if match else None


def marked_batches(store: Store, name: str, series: str) -> list[int]:
    """The numbers of the complete batches of a series that `store` itself holds."""
    parts = [_MARKER.fullmatch(file.rpartition("/")[2]) for file in store.list(f"{input_folder(name)}/markers")]
    return sorted(int(part.group(2)) for part in parts if part is not None and (part.group(1) or "") == series)


def series_of(store: Store, name: str) -> BatchSeries | None:
    """What `store` itself says of the input `name`; None when it has none of it."""
    folder = input_folder(name)
    file = f"{folder}/series.json"
    if not store.exists(file):
        was_before = store.list(f"{folder}/markers") or store.list(f"{folder}/checkpoint")
        return BatchSeries("") if was_before or store.exists(f"{folder}/consumed.json") else None
    try:
        document = json.loads(store.get(file))
        inherits = tuple(InheritedBatches(**past) for past in document["inherits"])
        return BatchSeries(str(document["series"]), inherits)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreDamagedError(
            f"Store {store.url}: {file!r}, which says whose stored input it is, is not readable ({error}). "
            f"Restore it from a copy."
        ) from error


def new_series(store: Store, name: str) -> BatchSeries:
    """The series with which an input begins in `store`: on top of that of the nearest store below that has it."""
    token = secrets.token_hex(6)
    for base in store.bases if isinstance(store, LayeredStore) else ():
        past = series_of(base, name)
        if past is not None:
            through = max(
                consumed_through(base, name), *marked_batches(base, name, past.series), past.inherited_through
            )
            return BatchSeries(token, (*past.inherits, InheritedBatches(base.url, past.series, through)))
    return BatchSeries(token)


def save_series(store: Store, name: str, series: BatchSeries) -> None:
    """From now on the input has this series. What it needs must be there before."""
    store.put(f"{input_folder(name)}/series.json", json.dumps(asdict(series), indent=1).encode())


def consumed_through(store: Store, name: str) -> int:
    """The number of the last batch that was removed after it was read; -1 while there is none."""
    file = f"{input_folder(name)}/consumed.json"
    return int(json.loads(store.get(file))["through"]) if store.exists(file) else -1


def save_consumed(store: Store, name: str, through: int) -> None:
    """The batches up to this number are about to be removed."""
    store.put(f"{input_folder(name)}/consumed.json", json.dumps({"through": through}).encode())
