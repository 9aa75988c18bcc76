"""Starting from a snapshot: one manifest that says what the snapshot's says, and an ordinary start after it. Pure.

In the job's own store that is going back: the next epoch has the positions and states of an old one, and the epochs in
between stay as they were, until retention takes them. In a new store it is a fork, or a restore elsewhere: the first
manifest there carries on the count of epochs. Either way nothing is copied: states are named, not moved.

Output that was published after the restored epoch is not undone. What each sink can do about it is for the sink to say
(`Sink.after_restore`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.program import program_of

__all__ = ["Match", "derived_uids", "match_program", "restored_manifest", "without_states"]


def restored_manifest(
    snapshot: Manifest,
    *,
    job: str,
    job_id: str,
    run: str,
    epoch: int,
    now_ms: int,
    parent: int,
    published_through: int | None = None,
) -> Manifest:
    """The manifest with which a job goes on from `snapshot` as epoch `epoch`, after `parent` (0 in a new store).

    `published_through`: of the epochs before it; None when all are known to be published.
    """
    return replace(
        snapshot,
        job=job,
        job_id=job_id,
        epoch=epoch,
        parent=parent,
        created_ms=now_ms,
        run=run,
        status="RUNNING",
        staged={},
        published_through=epoch if published_through is None else published_through,
    )


@dataclass(frozen=True)
class Match:
    """How the operators of a program meet what a snapshot keeps, by uid. Names are those of the program, or of the
    snapshot where the program has none."""

    matched: Mapping[str, str]
    new: Mapping[str, str]
    dropped: Mapping[str, str]  # with state, positions or pending output that would be lost

    @property
    def is_change(self) -> bool:
        """Whether the program is not the one of the snapshot."""
        return bool(self.new or self.dropped)

    def text(self, snapshot: str) -> str:
        """The difference, for people, before anything runs."""
        go_on = "1 operator goes on" if len(self.matched) == 1 else f"{len(self.matched)} operators go on"
        lines = [f"starting from {snapshot}: {go_on}"]
        lines += [f"  new      {name} (uid {uid}): begins without state" for uid, name in self.new.items()]
        lines += [f"  dropped  {name} (uid {uid}): its state is left behind" for uid, name in self.dropped.items()]
        return "\n".join(lines)


def match_program(snapshot: Manifest, program: Mapping[str, str], keeping: Collection[str]) -> Match:
    """Hold a program (names by uid) against a snapshot. `keeping`: the operators that keep something in it, besides the
    positions of sources."""
    was = program_of(snapshot)
    return Match(
        matched={uid: name for uid, name in program.items() if uid in was},
        new={uid: name for uid, name in program.items() if uid not in was},
        dropped={uid: snapshot.operator_name(uid) for uid in sorted({*keeping, *snapshot.sources} - set(program))},
    )


def derived_uids(snapshot: Manifest, keeping: Collection[str]) -> dict[str, str]:
    """Names by uid of the operators that keep state (`keeping`) under a uid that nobody gave them.

    Such a uid follows from what stands before the operator in the program, and is another one when that changes.
    """
    operators = program_of(snapshot)
    return {uid: operators[uid].name for uid in keeping if uid in operators and operators[uid].uid == "derived"}


def without_states(snapshot: Manifest, dropped: Collection[str]) -> Manifest:
    """The snapshot without what these operators kept."""
    return replace(
        snapshot,
        sources={uid: splits for uid, splits in snapshot.sources.items() if uid not in dropped},
        finished={uid: files for uid, files in snapshot.finished.items() if uid not in dropped},
        states={uid: state for uid, state in snapshot.states.items() if uid not in dropped},
        program={uid: operator for uid, operator in snapshot.program.items() if uid not in dropped},
        meanings={uid: meaning for uid, meaning in snapshot.meanings.items() if uid not in dropped},
    )
