"""Starting from a snapshot: a manifest with the snapshot's content, followed by an ordinary start. Pure.

In the job's own store that is a rollback: the next epoch has the positions and states of an old one, and the epochs in
between remain until retention removes them. In a new store it is a fork, or a restore into another store: the first
manifest there continues the epoch numbers. In both cases nothing is copied: states are referenced by name.

Output published after the restored epoch is not undone. Each sink reports how to handle it (`Sink.after_restore`).
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
    """The manifest with which a job resumes from `snapshot` as epoch `epoch`, after `parent` (0 in a new store).

    `published_through`: the newest published one of the epochs before it; None if all are known to be published.
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
    """The match between the operators of a program and the state of a snapshot, by uid. Names are those of the program,
    or of the snapshot for operators that the program lacks."""

    matched: Mapping[str, str]
    new: Mapping[str, str]
    dropped: Mapping[str, str]  # with state, positions or pending output that would be lost

    @property
    def is_change(self) -> bool:
        """Whether the program differs from the snapshot's."""
        return bool(self.new or self.dropped)

    def text(self, snapshot: str) -> str:
        """The differences, for display before the start."""
        resumed = "1 operator resumes" if len(self.matched) == 1 else f"{len(self.matched)} operators resume"
        lines = [f"starting from {snapshot}: {resumed}"]
        lines += [f"  new      {name} (uid {uid}): begins without state" for uid, name in self.new.items()]
        lines += [f"  dropped  {name} (uid {uid}): its state is discarded" for uid, name in self.dropped.items()]
        return "\n".join(lines)


def match_program(snapshot: Manifest, program: Mapping[str, str], stateful: Collection[str]) -> Match:
    """Matches a program (names by uid) with a snapshot. `stateful`: the operators with state in the snapshot, not
    counting sources with positions."""
    recorded = program_of(snapshot)
    return Match(
        matched={uid: name for uid, name in program.items() if uid in recorded},
        new={uid: name for uid, name in program.items() if uid not in recorded},
        dropped={uid: snapshot.operator_name(uid) for uid in sorted({*stateful, *snapshot.sources} - set(program))},
    )


def derived_uids(snapshot: Manifest, stateful: Collection[str]) -> dict[str, str]:
    """Names by uid of the operators with state (`stateful`) whose uid is derived, not set by the user.

    A derived uid depends on the program upstream of the operator, and changes with it.
    """
    operators = program_of(snapshot)
    return {uid: operators[uid].name for uid in stateful if uid in operators and operators[uid].uid == "derived"}


def without_states(snapshot: Manifest, dropped: Collection[str]) -> Manifest:
    """The snapshot without the state of these operators."""
    return replace(
        snapshot,
        sources={uid: splits for uid, splits in snapshot.sources.items() if uid not in dropped},
        finished={uid: files for uid, files in snapshot.finished.items() if uid not in dropped},
        states={uid: state for uid, state in snapshot.states.items() if uid not in dropped},
        program={uid: operator for uid, operator in snapshot.program.items() if uid not in dropped},
        meanings={uid: meaning for uid, meaning in snapshot.meanings.items() if uid not in dropped},
    )
