"""Phases of a program that is to be killed: lines that the test waits for."""

from __future__ import annotations

from collections.abc import Callable

from millstream.jobs.epochs.progress import JobProgress, ProgressBoard

__all__ = ["phase", "print_epochs"]


def phase(text: str) -> None:
    """Print that this phase is reached."""
    print(f"PHASE {text}", flush=True)


def print_epochs(board: ProgressBoard, then: Callable[[int], None] = lambda epoch: None) -> None:
    """Print every epoch that is committed from now on, and then call `then` with it."""
    seen = 0

    def tell(progress: JobProgress) -> None:
        nonlocal seen
        if progress.epoch > seen:
            seen = progress.epoch
            phase(f"epoch {seen}")
            then(seen)

    board.listen(tell)
