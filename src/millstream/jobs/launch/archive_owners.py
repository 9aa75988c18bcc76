"""The ownership of archives: a small file in an archive's folder names the job that writes there.

A job knows which files of a folder belong to it: its state names them. Other readers of the folder do not. If two jobs,
or a job and its fork, wrote there, they would read every key twice, or an older version of it. So an archive belongs to
one job as long as that job exists: a second job is rejected before it writes anything. When the first job no longer
exists, because its table was dropped or recreated, the next may own the folder, and the files in it stay.

The file is only created, or replaced if its job no longer exists. No query result depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from millstream.checkpoint.job_record import JobRecord
from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.sealed import seal, unseal
from millstream.errors import ProgramError, StoreAwayError, StoreDamagedError, StoreError
from millstream.graph.nodes import Node
from millstream.graph.stored_table import KeptTable
from millstream.plan.stages import Plan
from millstream.storage.patience import with_patience
from millstream.storage.store import Store, open_store, shown_address

__all__ = ["check_archive_owners", "claim_archives", "release_archive"]

FORMAT = 1
OWNER = ".millstream-archive.json"
"""Hidden from readers of the folder, like the files staged there."""


@dataclass(frozen=True)
class _Owner:
    """The job that owns an archive, and the address of its store."""

    job: str
    job_id: str
    store: str


def check_archive_owners(plan: Plan, store: Store) -> None:
    """Raises ProgramError if another job than that of `store`, which may not exist yet, owns an archive of the plan."""
    archives = list(_archives(plan))
    record = read_job_record(store) if archives else None
    for node, folder in archives:
        _check(node, folder, record)


def claim_archives(plan: Plan, record: JobRecord, store_url: str) -> None:
    """Make this job the owner of the plan's archives. Raises ProgramError if another job owns one."""
    owner = seal("archive", FORMAT, asdict(_Owner(record.job, record.job_id, shown_address(store_url))))
    for node, folder in _archives(plan):
        try:
            if not folder.create(OWNER, owner):
                _check(node, folder, record)
                folder.put(OWNER, owner)
        except StoreAwayError:
            raise
        except StoreError as error:
            # The store's own message gives advice on the job's --store, which is a different address.
            cause = error.__cause__
            reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else error.message
            raise StoreError(
                f"the archive of '{node.name}' cannot be written to {shown_address(folder.url)}: {reason}. Set "
                "'archive.path' to a folder that this user may write"
            ) from error


def release_archive(url: str, job_id: str) -> None:
    """Releases the archive of the job with this id, which no longer writes there: the next job may own it."""
    folder = with_patience(open_store(url))
    owner = _owner_of(folder)
    if owner is not None and owner.job_id == job_id:
        folder.delete(OWNER)


def _archives(plan: Plan) -> Iterator[tuple[Node, Store]]:
    for node in plan.nodes():
        archive = node.operation.archive if isinstance(node.operation, KeptTable) else None
        if archive is not None:
            yield node, with_patience(open_store(archive.url))


def _check(node: Node, folder: Store, record: JobRecord | None) -> None:
    owner = _owner_of(folder)
    own = () if record is None else record.ids
    if owner is None or owner.job_id in own or not _is_there(owner):
        return
    raise ProgramError(
        f"'{node.name}' has its archive in {shown_address(folder.url)}, which belongs to job '{owner.job}' in "
        f"{owner.store}: readers of the folder could not distinguish their rows. Set 'archive.path' to another "
        f"folder; if that job no longer exists, remove its store, or {OWNER} in the folder",
        at=str(node.site),
    )


def _owner_of(folder: Store) -> _Owner | None:
    if not folder.exists(OWNER):
        return None
    where = f"{OWNER} in {shown_address(folder.url)}"
    fields = unseal(folder.get(OWNER), "archive", FORMAT, where)
    try:
        return _Owner(str(fields["job"]), str(fields["job_id"]), str(fields["store"]))
    except KeyError as error:
        raise StoreDamagedError(f"{where} has no {error}. Remove it, if no job writes to the folder") from error


def _is_there(owner: _Owner) -> bool:
    """Whether the job still exists. A job whose store cannot be reached now counts as existing."""
    try:
        record = read_job_record(open_store(owner.store))
    except StoreError:
        return True
    return record is not None and record.is_still(owner.job_id)
