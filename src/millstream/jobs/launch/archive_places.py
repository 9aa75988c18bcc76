"""Rejects table archives inside the job's own store, and two archives in one folder.

A store is swept, copied, forked and deleted as a whole, by its own rules. Files of an archive outlive it: `DROP` of
a table deletes its store, and leaves its archive. The rows of two tables in one folder could not be distinguished.
"""

from __future__ import annotations

from millstream.errors import ProgramError
from millstream.graph.stored_table import KeptTable
from millstream.plan.stages import Plan
from millstream.storage.store import Store, shown_address

__all__ = ["check_archive_places"]


def check_archive_places(plan: Plan, store: Store) -> None:
    """Raises ProgramError if a table's archive is the store or a folder in it, or another table's as well."""
    owners: dict[str, str] = {}
    for node in plan.nodes():
        archive = node.operation.archive if isinstance(node.operation, KeptTable) else None
        if archive is None:
            continue
        folder, shown = _folder(archive.url), shown_address(archive.url)
        if folder.startswith(_folder(store.url)):
            raise ProgramError(
                f"'{node.name}' has its archive in {shown}, inside the job's own store {shown_address(store.url)}, "
                "which is swept and deleted as a whole. Set 'archive.path' to a folder outside the store",
                at=str(node.site),
            )
        if folder in owners:
            raise ProgramError(
                f"'{owners[folder]}' and '{node.name}' share one archive, {shown}. Set an 'archive.path' for each "
                "of them",
                at=str(node.site),
            )
        owners[folder] = node.name


def _folder(url: str) -> str:
    return url.partition("?")[0].rstrip("/") + "/"
