"""A word to whoever keeps a snapshot of operators that nobody gave a uid.

State is found by uid. One that is derived from the program changes with it: a snapshot is then refused, and nothing is
lost, but the time to say so is before. The sentence names the uid that the operator has now: given as it is, it keeps
what was saved.
"""

from __future__ import annotations

import logging

from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.restoring import derived_uids
from millstream.state.stored.accounts import accounts_of

__all__ = ["derived_uids_text", "warn_of_derived_uids"]

_LOG = logging.getLogger("millstream.restore")


def derived_uids_text(manifest: Manifest) -> str:
    """What to say about a manifest; "" when all of its operators with state have a uid that was given."""
    keeping = [uid for uid, account in accounts_of(manifest).items() if account.keeps_state]
    names = derived_uids(manifest, keeping)
    if not names:
        return ""
    lines = "".join(f'\n  {name}: .uid("{uid}")' for uid, name in names.items())
    return (
        "state is found by uid, and some operators have one that is derived from what stands before them: it changes "
        f"when the program does, and their state is then not found. Give them the uids they have:{lines}"
    )


def warn_of_derived_uids(manifest: Manifest) -> None:
    """Log it."""
    text = derived_uids_text(manifest)
    if text:
        _LOG.warning("%s", text)
