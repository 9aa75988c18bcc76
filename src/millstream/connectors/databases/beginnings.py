"""What the first start of a job has made in a database so far, so that a start that is refused leaves nothing there.

A slot keeps the server's log until the disk is full; a publication makes the server refuse changes of tables without a
replica identity. So both are removed again, unless the process is killed: then the next start removes the slot.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.connectors.databases import slots
from millstream.connectors.databases.publications import drop_publication

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["Beginning"]

_LOG = logging.getLogger(__name__)


@dataclass
class Beginning:
    """A slot that was made or is about to be, and a publication that was not there before."""

    slot: slots.Slot | None = None
    publication: str | None = None
    slots_before: frozenset[str] = frozenset()

    @property
    def is_something(self) -> bool:
        return self.slot is not None or self.publication is not None

    def undo(self, connection: Connection[Any]) -> None:
        """Remove both; not the publication, if somebody has begun to read since it was made: perhaps with it."""
        mine: set[str] = set()
        if self.slot is not None:
            mine = {self.slot.name, self.slot.reader.name}
            slots.drop_slot(connection, self.slot)
        if self.publication is None:
            return
        if others := slots.logical_slots(connection) - self.slots_before - mine:
            _LOG.warning("publication %s is left, since slot %s may be read with it", self.publication, min(others))
            return
        drop_publication(connection, self.publication)
