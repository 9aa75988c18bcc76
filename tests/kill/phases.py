"""How a program that is to be killed tells where it is: lines that the test waits for."""

from __future__ import annotations

from collections.abc import Callable

from millstream.jobs.epochs.progress import JobProgress, ProgressBoard

__all__ = ["phase", "tell_epochs"]


def phase(text: str) -> None:
    """Say that this is reached."""
    print(f"PHASE {text}", flush=True)


def tell_epochs(board: ProgressBoard, then: Callable[[int], None] = lambda epoch: None) -> None:
    """Say every epoch that is committed from now on, and do this with it."""
    seen = 0

    def tell(progress: JobProgress) -> None:
        nonlocal seen
        if progress.epoch > seen:
            seen = progress.epoch
            phase(f"epoch {seen}")
            then(seen)

    board.listen(tell)
