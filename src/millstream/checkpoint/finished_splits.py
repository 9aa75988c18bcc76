"""Moves the names of finished splits to separate files, so that they need not be repeated in every manifest.

A manifest lists the position of every split finished in its epoch or shortly before, so that an epoch can be replayed.
When that list has grown to `LISTED_MAX`, the names of splits finished *before* the next epoch are written to a file
once, and later manifests name the file. A job that has read a million files has at most a thousand such files, and
small manifests.

A file is written before the manifest that names it, under a name that is never reused. A file that no manifest names
belongs to an epoch that never happened; it is swept like a segment. The manifest also has its checksum: if the file
were replaced by another, the job would read input twice, or not at all.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterable, Mapping

from millstream.checkpoint.manifest import Manifest, SplitFile
from millstream.checkpoint.sealed import seal, unseal
from millstream.errors import StoreDamagedError
from millstream.storage.names import finished_name
from millstream.storage.store import Store

__all__ = ["LISTED_MAX", "FinishedSplits", "names_in"]

FORMAT = 1
LISTED_MAX = 1_000


class FinishedSplits:
    """The finished splits of one job's sources that are listed in files. Each file is read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._files: dict[SplitFile, frozenset[str]] = {}
        self._names: dict[str, tuple[tuple[SplitFile, ...], frozenset[str]]] = {}

    def names(self, manifest: Manifest | None) -> Mapping[str, frozenset[str]]:
        """The names by the uid of their source."""
        if manifest is None:
            return {}
        return {uid: self._of_source(uid, files) for uid, files in manifest.finished.items()}

    def _of_source(self, uid: str, files: tuple[SplitFile, ...]) -> frozenset[str]:
        cached = self._names.get(uid)
        if cached is None or cached[0] != files:
            names = frozenset().union(*(self._read(file) for file in files))
            cached = self._names[uid] = (files, names)
        return cached[1]

    def _read(self, file: SplitFile) -> frozenset[str]:
        if file not in self._files:
            self._files[file] = names_in(file, self._store.get(file.file))
        return self._files[file]

    def filed(self, newest: Manifest, epoch: int, listed: Collection[str] = ()) -> dict[str, SplitFile]:
        """Writes lists of finished splits for the manifest of `epoch`, for sources that have enough of them.

        `listed`: sources that keep all their positions in the manifest, because they remove input by them.
        """
        filed: dict[str, SplitFile] = {}
        for uid, positions in newest.sources.items():
            names = sorted(name for name, at in positions.items() if at.finished)
            if len(names) >= LISTED_MAX and uid not in listed:
                filed[uid] = self._write(uid, names, epoch)
        return filed

    def _write(self, uid: str, names: list[str], epoch: int) -> SplitFile:
        data = seal("finished-splits", FORMAT, {"splits": names})
        name = finished_name(uid, epoch, secrets.token_hex(4))
        self._store.put(name, data)
        file = SplitFile(name, len(names), hashlib.sha256(data).hexdigest())
        self._files[file] = frozenset(names)
        return file


def names_in(file: SplitFile, data: bytes) -> frozenset[str]:
    """The splits listed in a file; StoreDamagedError if its checksum differs from the manifest's."""
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise StoreDamagedError(
            f"{file.file}, a list of finished input, does not match its checksum in the manifest. Nothing was "
            "overwritten; restore the file from a copy, or input would be read twice."
        )
    names: Iterable[str] = unseal(data, "finished-splits", FORMAT, file.file)["splits"]
    return frozenset(names)
