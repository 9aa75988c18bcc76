"""A module beside the program, as users have them: tasks import it, too."""

from __future__ import annotations

EPOCH_RECORDS = 40
