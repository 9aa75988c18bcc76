"""The objects that a job's first start has created in a database so far, so that a refused start can remove them.

A slot retains the server's log until the disk is full; a publication makes the server refuse changes of tables without
a replica identity. So both are removed, unless the process is killed: then the next start removes the slot.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.connectors.databases import slots
from millstream.connectors.databases.publications import drop_publication

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["CreatedObjects"]

_LOG = logging.getLogger(__name__)


@dataclass
class CreatedObjects:
    """A slot that was or is about to be created, and a publication that this start created."""

    slot: slots.Slot | None = None
    publication: str | None = None
    slots_before: frozenset[str] = frozenset()

    @property
    def has_objects(self) -> bool:
        return self.slot is not None or self.publication is not None

    def undo(self, connection: Connection[Any]) -> None:
        """Drop both, but keep the publication if another slot has been created since, which may use it."""
        own_slots: set[str] = set()
        if self.slot is not None:
            own_slots = {self.slot.name, self.slot.reader.name}
            slots.drop_slot(connection, self.slot)
        if self.publication is None:
            return
        if others := slots.logical_slots(connection) - self.slots_before - own_slots:
            _LOG.warning("publication %s is not dropped, because slot %s may use it", self.publication, min(others))
            return
        drop_publication(connection, self.publication)
