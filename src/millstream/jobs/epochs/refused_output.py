"""Publishes an epoch whose target refuses rows: the epoch waits, or is published without these rows.

Without permission, by the sink's `with_dead_letters` or by `millstream refused --set-aside`, refused rows are listed in
the store, and publishing fails with instructions for inspecting them. With permission:

1. list the rows in the store, before anything is published without them;
2. have the sink publish the rest; if the target refuses more rows, return to step 1;
3. write the listed rows to the folder, under the name of the commit;
4. record their location in the list.

Only then does the epoch count as published and get its receipt. After a crash between any two steps the list identifies
the rows to leave out, so each row is exactly once in either the target or the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from millstream.checkpoint.refused_output import (
    ListedRow,
    RefusedList,
    allowed_folder,
    drop_old_lists,
    read_refused,
    remove_refused,
    write_refused,
)
from millstream.connectors.contracts import CommitId, Json, Sink
from millstream.connectors.dead_letter_files import write_dead_letters
from millstream.connectors.refused_rows import RefusedRow, RefusedRowsError, without_rows
from millstream.errors import ConnectorError, StoreDamagedError, StoreError
from millstream.storage.shared_names import REFUSED, is_refused, refused_name
from millstream.storage.store import Store, shown_address

__all__ = ["RefusedOutput"]

_ROWS_MAX = 100_000
"""At most this many rows of an epoch are set aside. If more are refused, the target is at fault, not the rows."""
_SHOWN_MAX = 1_000
"""At most this many are shown in the list; the others are listed by position and reason."""


class RefusedOutput:
    """Has sinks commit, and handles the rows that their targets refuse. Used by one driver on its publishing thread."""

    def __init__(self, store: Store, now_ms: Callable[[], int]) -> None:
        self._store, self._now_ms = store, now_ms
        self._lists: set[str] | None = None  # names of the lists: an epoch without a list needs no request to the store
        self._committers: set[str] = set()  # the sinks that this driver has published for

    def commit(self, sink: Sink, commit: CommitId, operator: str, publish: Sequence[Json]) -> None:
        """Publish an epoch of a sink. Raises RefusedRowsError if rows are refused and may not be set aside."""
        if not publish:
            sink.commit(commit, publish, self._store)
            return
        refused = self._left_out(sink, commit)
        while True:
            try:
                sink.commit(commit, without_rows(publish, _places(refused)), self._store)
                break
            except RefusedRowsError as error:
                refused = self._listed_now(sink, commit, operator, refused, error)
        if refused is None and commit.committer not in self._committers:
            refused = self._left_out_by_another(sink, commit)
        if refused is not None and not refused.is_set_aside:
            self._write_dead_letters(refused, commit, publish)
        self._committers.add(commit.committer)

    def _write_dead_letters(self, refused: RefusedList, commit: CommitId, publish: Sequence[Json]) -> None:
        try:
            files = write_dead_letters(refused.folder, commit, publish, _places(refused), self._store)
        except StoreDamagedError:
            raise  # the staged output is damaged, not the folder
        except StoreError as error:
            own, folder = shown_address(self._store.url), shown_address(refused.folder)
            raise type(error)(
                f"{len(refused.rows)} refused rows of epoch {commit.epoch} cannot be written to {folder}: "
                f"{error.message.rstrip('.')}. The epoch is published without them, and no later epoch is published "
                "until they are written. Free space there, or choose another folder"
                ": "
                f"`millstream refused {own} --set-aside FOLDER`"
            ) from error
        write_refused(self._store, replace(refused, files=tuple(files)))
        drop_old_lists(self._store, commit.job, commit.sink)

    def _left_out(self, sink: Sink, commit: CommitId) -> RefusedList | None:
        """The rows to leave out of this epoch from the start: those listed with permission before a crash."""
        if self._lists is None:
            self._lists = set(filter(is_refused, self._store.list(REFUSED)))
        if refused_name(commit.sink, commit.epoch) not in self._lists:
            return None
        try:
            refused = read_refused(self._store, commit.sink, commit.epoch)
        except StoreDamagedError:
            if self._folder(sink, commit):  # the left-out rows are no longer known
                raise
            refused = None
        if refused is not None and refused.folder and refused.job_id == commit.job:
            return refused if refused.is_set_aside else replace(refused, folder=self._folder(sink, commit, refused))
        # The rows were listed without permission. The target may accept some now; if it refuses others, they are listed
        # anew.
        remove_refused(self._store, commit.sink, commit.epoch)
        return None

    def _left_out_by_another(self, sink: Sink, commit: CommitId) -> RefusedList | None:
        """The rows that another driver left out of the first epoch that this one publishes. That driver may have listed
        rows, published without them and ended after this one read the list. Then this driver publishes nothing, but
        must still write the rows to the folder."""
        if not sink.reports_refused_rows:
            return None
        refused = read_refused(self._store, commit.sink, commit.epoch)
        if refused is None or refused.job_id != commit.job or not refused.folder:
            return None
        return replace(refused, folder=self._folder(sink, commit, refused))

    def _listed_now(
        self, sink: Sink, commit: CommitId, operator: str, before: RefusedList | None, error: RefusedRowsError
    ) -> RefusedList:
        """List the newly refused rows. Raises RefusedRowsError for the user if they may not be set aside."""
        folder = self._folder(sink, commit, before)
        listed = () if before is None else before.rows
        room = _SHOWN_MAX - len(listed)
        rows = (
            *listed,
            *(
                ListedRow(row.item, row.row, row.reason, row.shown if at < room else "")
                for at, row in enumerate(error.rows)
            ),
        )
        if len(rows) > _ROWS_MAX:
            raise self._too_many(commit, before, error) from error
        refused = RefusedList(
            commit.job, commit.sink, commit.epoch, operator, sink.describe(), rows, self._now_ms(), folder
        )
        write_refused(self._store, refused)
        assert self._lists is not None, "rows are listed before anything is published"
        self._lists.add(refused_name(commit.sink, commit.epoch))
        if not folder:
            raise RefusedRowsError(self._advice(commit, error), error.rows) from error
        return refused

    def _too_many(self, commit: CommitId, listed: RefusedList | None, error: RefusedRowsError) -> ConnectorError:
        """The error of an epoch with more refused rows than may be set aside. The listed rows are published once the
        target is repaired, unless the sink has already continued past them: then its position in the epoch excludes
        them."""
        message = f"{error.message}. More than {_ROWS_MAX} rows of epoch {commit.epoch} are refused"
        if error.continues_after:
            return ConnectorError(
                f"{message}: no more of them are set aside. Repair the target; the first {_ROWS_MAX} are written to "
                "the folder when the epoch is published"
            )
        if listed is not None:
            remove_refused(self._store, commit.sink, commit.epoch)
        return ConnectorError(f"{message}: none of them is set aside. Repair the target")

    def _folder(self, sink: Sink, commit: CommitId, listed: RefusedList | None = None) -> str:
        """The folder for refused rows of this epoch; "": they may not be set aside. A permission granted now
        takes precedence over the one in the list, whose folder may no longer exist."""
        allowed = allowed_folder(self._store, commit.job, commit.sink, commit.epoch)
        return allowed or sink.dead_letters or ("" if listed is None else listed.folder)

    def _advice(self, commit: CommitId, error: RefusedRowsError) -> str:
        count = len(error.rows)
        rows = "a row is" if count == 1 else f"{count} rows are"
        place = shown_address(self._store.url)
        return (
            f"{error.message}. Of epoch {commit.epoch}, which is committed, {rows} refused: the epoch waits. "
            f"See what is refused by `millstream refused {place}`. Then repair the target, or "
            f"continue without these rows: `millstream refused {place} --set-aside FOLDER` has them written there"
        )


def _places(refused: RefusedList | None) -> tuple[RefusedRow, ...]:
    """The rows that are left out."""
    return () if refused is None else tuple(RefusedRow(r.item, r.row, r.reason, r.shown) for r in refused.rows)
