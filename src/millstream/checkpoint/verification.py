"""Verification results: a report per epoch, derived from problems of single files. Pure.

A file is named by many epochs but checked once. An epoch is intact if its manifest can be read and every file it
needs is intact: segments of state, lists too large for the manifest, staged output that is not known to be published.
`state_reader.verifying` checks the files; this module draws the conclusions and formats them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from millstream.checkpoint.manifest import JSON, Manifest
from millstream.checkpoint.retention import named_files
from millstream.storage.names import parse_staged

__all__ = [
    "EpochReport",
    "NamedFile",
    "Problem",
    "StagedFile",
    "StoreReport",
    "epoch_report",
    "staged_files",
    "staged_needed",
]

_STRAYS_SHOWN = 10


@dataclass(frozen=True)
class NamedFile:
    """A file that an epoch needs, or a part of its manifest, and its purpose."""

    name: str
    bytes: int
    what: str


@dataclass(frozen=True)
class Problem:
    """A problem: the file, the defect, and the purpose of the file."""

    file: str
    finding: str
    what: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.finding}" + (f" ({self.what})" if self.what else "")


@dataclass(frozen=True)
class EpochReport:
    """One epoch; intact if it has no problems."""

    epoch: int
    files: int
    bytes: int
    problems: tuple[Problem, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether a job can resume from it."""
        return not self.problems


@dataclass(frozen=True)
class StoreReport:
    """A store or a savepoint, its epochs oldest first, and problems outside epochs. `strays`: files that no Millstream
    creates; they are harmless, and only their owner should remove them."""

    where: str
    epochs: tuple[EpochReport, ...]
    problems: tuple[Problem, ...] = ()
    strays: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether no problems were found."""
        return not self.problems and all(epoch.is_whole for epoch in self.epochs)

    @property
    def newest_whole(self) -> int | None:
        """The newest epoch from which a job can resume."""
        return max((epoch.epoch for epoch in self.epochs if epoch.is_whole), default=None)

    def text(self) -> str:
        """The report as text.

        >>> print(StoreReport("jobs/a", (EpochReport(7, 2, 4096), EpochReport(8, 2, 4096, (
        ...     Problem("segments/x.arrow", "it is missing", "state 'total' of 'count'"),)))).text())
        jobs/a: 1 of 2 epochs is whole
          epoch 7  whole    2 files, 4,096 bytes
          epoch 8  DAMAGED  2 files, 4,096 bytes
                   segments/x.arrow: it is missing (state 'total' of 'count')
        The newest epoch that is whole is 7.
        """
        whole = sum(epoch.is_whole for epoch in self.epochs)
        verb = "is" if whole == 1 else "are"
        lines = [f"{self.where}: {whole} of {_counted(len(self.epochs), 'epoch')} {verb} whole"]
        lines += [f"  {problem}" for problem in self.problems]
        width = max((len(str(epoch.epoch)) for epoch in self.epochs), default=1)
        for epoch in self.epochs:
            status = "whole  " if epoch.is_whole else "DAMAGED"
            size = f"{_counted(epoch.files, 'file')}, {epoch.bytes:,} bytes"
            lines.append(f"  epoch {epoch.epoch:>{width}}  {status}  {size}")
            lines += [f"{' ' * (10 + width)}{problem}" for problem in epoch.problems]
        if self.strays:
            verb = "is" if len(self.strays) == 1 else "are"
            some = ", ".join(self.strays[:_STRAYS_SHOWN]) + (", …" if len(self.strays) > _STRAYS_SHOWN else "")
            lines.append(f"  {_counted(len(self.strays), 'file')} {verb} none of Millstream's: {some}")
        if not self.is_whole:
            newest = self.newest_whole
            lines.append(f"The newest epoch that is whole is {newest}." if newest else "No epoch is whole.")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "where": self.where,
            "whole": self.is_whole,
            "newest_whole": self.newest_whole,
            "problems": [vars(problem) for problem in self.problems],
            "strays": list(self.strays),
            "epochs": [
                {
                    "epoch": epoch.epoch,
                    "whole": epoch.is_whole,
                    "files": epoch.files,
                    "bytes": epoch.bytes,
                    "problems": [vars(problem) for problem in epoch.problems],
                }
                for epoch in self.epochs
            ],
        }


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


@dataclass(frozen=True)
class StagedFile:
    """A staged file as recorded in a manifest. `target`: its store, None for the job's own. `part`: the name under
    which it is published, "" before it has one."""

    file: str
    bytes: int | None = None
    crc32: int | None = None
    target: str | None = None
    part: str = ""


def staged_files(manifest: Manifest, published_through: int) -> list[StagedFile]:
    """The staged files that a start from this epoch would publish: those in the job's store, and those elsewhere whose
    location the manifest records."""
    in_store = set(staged_needed(manifest, published_through))
    places: list[JSON] = [dict(manifest.states)]
    if manifest.epoch > published_through:
        places += [staged.payload for parts in manifest.staged.values() for staged in parts]
    files: dict[tuple[str | None, str], StagedFile] = {(None, name): StagedFile(name) for name in in_store}
    for place in places:
        for file in _file_entries(place, None, ""):
            if file.target is not None or file.file in in_store:
                files[file.target, file.file] = file
    return [files[key] for key in sorted(files, key=lambda key: (key[0] or "", key[1]))]


def _file_entries(value: JSON, target: str | None, part: str) -> Iterator[StagedFile]:
    """Every file recorded in `value` with its length and checksum."""
    if isinstance(value, list):
        for item in value:
            yield from _file_entries(item, target, part)
    elif isinstance(value, dict):
        place, name = value.get("target", target), value.get("part", part)
        target, part = (place if isinstance(place, str) else target), (name if isinstance(name, str) else part)
        file, length, checksum = value.get("file"), value.get("bytes"), value.get("crc32")
        if isinstance(file, str) and isinstance(length, int) and isinstance(checksum, int):
            yield StagedFile(file, length, checksum, target, part)
        for item in value.values():
            yield from _file_entries(item, target, part)


def staged_needed(manifest: Manifest, published_through: int) -> list[str]:
    """The staged files that a start from this epoch would need: all that its sinks withhold, and its own staged output
    if that is not known to be published."""
    pending = {name for name in named_files(_without_output(manifest)) if parse_staged(name) is not None}
    if manifest.epoch > published_through:
        pending |= {name for name in named_files(manifest) if parse_staged(name) is not None}
    return sorted(pending)


def _without_output(manifest: Manifest) -> Manifest:
    return replace(manifest, staged={})


def epoch_report(epoch: int, files: Iterable[tuple[NamedFile, Iterable[str]]]) -> EpochReport:
    """The report of an epoch that needs these files, each with its problems."""
    needed: dict[str, NamedFile] = {}
    all_problems: dict[Problem, None] = {}  # a file may be named several times, for ranges of key groups
    for file, problems in files:
        needed[file.name] = file
        all_problems.update(dict.fromkeys(Problem(file.name, problem, file.what) for problem in problems))
    return EpochReport(epoch, len(needed), sum(file.bytes for file in needed.values()), tuple(all_problems))
