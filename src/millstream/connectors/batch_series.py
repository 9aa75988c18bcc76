"""The series of stored input batches: an input's own, and the inherited ones that precede it.

Batches are numbered by their writer, starting at 0: a job that was forked, or restored into
another store, would reuse the numbers of its original job. So numbers are counted within a **series**, whose
token is drawn at random when an input is first stored in a job's store, and is part of every name. A job based on
another one inherits that one's batches as of its first start, and continues counting from there.

    input/{name}/series.json    {"series": "3f9a2c", "inherits": [{"store": "jobs/a", "series": "…", "through": 7}]}

An input stored before series existed has the token "" and no such file. This file, the lists of batches
and the record of removed ones are sealed (`checkpoint/sealed.py`): one changed digit would silently drop or duplicate
rows. The first versions wrote unsealed files, which are read without a check.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from millstream.checkpoint.sealed import seal, unseal_any
from millstream.errors import FencedError, StoreDamagedError
from millstream.storage.layered_stores import LayeredStore
from millstream.storage.names import INPUT
from millstream.storage.path_parts import safe
from millstream.storage.store import Store

__all__ = [
    "BatchSeries",
    "InheritedBatches",
    "batch_folder",
    "batch_of_split",
    "consumed_through",
    "input_folder",
    "is_sealed",
    "marked_batches",
    "marker_name",
    "new_series",
    "read_sealed",
    "save_consumed",
    "save_sealed",
    "save_series",
    "scratch_folder",
    "series_of",
    "split_name",
]

_CONSUMED, _SERIES = "consumed.json", "series.json"
_KINDS = {_CONSUMED: "input-consumed", _SERIES: "input-series"}  # any other is the list of a batch
_FORMAT = 1
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
    """The batches of one input: inherited ones, oldest first, and its own, which continue their numbers."""

    series: str
    inherits: tuple[InheritedBatches, ...] = ()

    @property
    def inherited_through(self) -> int:
        return max((past.through for past in self.inherits), default=-1)

    @property
    def tokens(self) -> frozenset[str]:
        """Every series of its batches."""
        return frozenset((self.series, *(past.series for past in self.inherits)))


def input_folder(name: str) -> str:
    """The folder of the input `name` in a store."""
    return f"{INPUT}/{safe(name)}"


def batch_label(series: str, number: int) -> str:
    """A batch by its number within its series.

    >>> batch_label("3f9a", 7), batch_label("", 7)
    ('3f9a-000000000007', '000000000007')
    """
    return f"{series}-{number:012d}" if series else f"{number:012d}"


def batch_folder(name: str, series: str, number: int) -> str:
    """The folder of a batch."""
    return f"{input_folder(name)}/batch-{batch_label(series, number)}"


def scratch_folder(name: str, series: str, scratch: str) -> str:
    """A folder for the writer of the batches of a series.

    >>> scratch_folder("in", "3f9a", "checkpoint"), scratch_folder("in", "", "checkpoint")
    ('input/in/checkpoint-3f9a', 'input/in/checkpoint')
    """
    return f"{input_folder(name)}/{scratch}-{series}" if series else f"{input_folder(name)}/{scratch}"


def marker_name(name: str, series: str, number: int) -> str:
    """The list of a batch's files, which exists once the batch is complete."""
    return f"{input_folder(name)}/markers/{batch_label(series, number)}.json"


def split_name(series: str, number: int, at: int) -> str:
    """The split of the file at this position of a batch's list."""
    return f"{batch_label(series, number)}-{at:05d}"


def batch_of_split(split: str) -> tuple[str, int] | None:
    """The series and number of the batch of a split; None for any other name.

    >>> batch_of_split("3f9a-000000000007-00001"), batch_of_split("000000000007-00001"), batch_of_split("even")
    (('3f9a', 7), ('', 7), None)
    """
    match = _SPLIT.fullmatch(split)
    return (match.group(1) or "", int(match.group(2))) if match else None


def save_sealed(store: Store, name: str, fields: Mapping[str, Any]) -> None:
    """Write one of the small files of an input: its series, the list of a batch, or the record of removals."""
    store.put(name, seal(_kind(name), _FORMAT, fields))


def read_sealed(store: Store, name: str) -> dict[str, Any]:
    """Read a file of `save_sealed`; StoreDamagedError if it has changed."""
    return unseal_any(store.get(name), _kind(name), _FORMAT, f"Store {store.url}: {name!r}")


def is_sealed(name: str) -> bool:
    """Whether a file of a store is named like a file of `save_sealed`.

    >>> is_sealed("input/in/markers/3f9a-000000000007.json"), is_sealed("input/in/checkpoint-3f9a/any.json")
    (True, False)
    """
    folder, _, file = name.rpartition("/")
    return file in _KINDS or (folder.endswith("/markers") and _MARKER.fullmatch(file) is not None)


def _kind(name: str) -> str:
    return _KINDS.get(name.rpartition("/")[2], "input-batch")


def marked_batches(store: Store, name: str, series: str) -> list[int]:
    """The numbers of the complete batches of a series in `store` itself."""
    parts = [_MARKER.fullmatch(file.rpartition("/")[2]) for file in store.list(f"{input_folder(name)}/markers")]
    return sorted(int(part.group(2)) for part in parts if part is not None and (part.group(1) or "") == series)


def series_of(store: Store, name: str) -> BatchSeries | None:
    """The series of the input `name` in `store` itself, if any."""
    folder = input_folder(name)
    file = f"{folder}/{_SERIES}"
    if not store.exists(file):
        older_files = store.list(f"{folder}/markers") or store.list(f"{folder}/checkpoint")
        return BatchSeries("") if older_files or store.exists(f"{folder}/{_CONSUMED}") else None
    document = read_sealed(store, file)
    try:
        inherits = tuple(InheritedBatches(**past) for past in document["inherits"])
        return BatchSeries(str(document["series"]), inherits)
    except (KeyError, TypeError) as error:
        raise StoreDamagedError(
            f"Store {store.url}: {file!r}, the series of a stored input, is not readable ({error}). "
            f"Restore it from a copy."
        ) from error


def new_series(store: Store, name: str) -> BatchSeries:
    """The series for a new input in `store`: based on that of the nearest base store that has it."""
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
    """Store the series of the input, after everything it depends on. FencedError if the input has another one:
    the other driver's batches belong to the job, and would be unreachable under this series."""
    file = f"{input_folder(name)}/{_SERIES}"
    if not store.create(file, seal(_kind(file), _FORMAT, asdict(series))):
        raise FencedError(
            f"Store {store.url}: another driver has started this job at the same time, and stores the input {name!r}. "
            "This one has stopped"
        )


def consumed_through(store: Store, name: str) -> int:
    """The number of the last batch that was removed after it was read; -1 if none was."""
    file = f"{input_folder(name)}/{_CONSUMED}"
    if not store.exists(file):
        return -1
    through = read_sealed(store, file).get("through")
    if type(through) is not int:
        raise StoreDamagedError(
            f"Store {store.url}: {file!r} is not a record of removed input. Restore it from a copy."
        )
    return through


def save_consumed(store: Store, name: str, through: int) -> None:
    """Record that the batches up to this number are about to be removed."""
    save_sealed(store, f"{input_folder(name)}/{_CONSUMED}", {"through": through})
