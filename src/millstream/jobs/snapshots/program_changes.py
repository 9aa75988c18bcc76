"""What the owner of a job is told when its program has changed, or may change, against what is saved.

**Operators without a uid.** State is found by uid. One that is derived from the program changes with it: a snapshot is
then refused, and nothing is lost, but the time to say so is before. The sentence names the uid that the operator has
now: given as it is, it keeps what was saved.

**States of another type.** What a function declares is known when it is opened in a task, so this is said once, when
the first epoch is committed; it is the last line of the difference between a program and its snapshot
(`checkpoint/restoring.py` has the others). A change that cannot be made fails that epoch, and nothing is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.restoring import derived_uids
from millstream.state.schemas.saved_types import shown_types, written_type
from millstream.state.schemas.state_schemas import last_schemas
from millstream.state.stored.accounts import OperatorAccount, accounts_of, tables_of

__all__ = ["changed_types", "derived_uids_text", "log_changed_types", "warn_of_derived_uids"]

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


def log_changed_types(before: Manifest, after: Manifest) -> None:
    """Log each state that `after` keeps as another type than `before`."""
    for line in changed_types(before, after):
        _LOG.warning("%s", line)


def changed_types(before: Manifest, after: Manifest) -> list[str]:
    """One line for each state that `after` keeps as another type than `before`."""
    lines = []
    for uid, account in accounts_of(before).items():
        if uid in accounts_of(after):
            texts = _changed(account, accounts_of(after)[uid], after.operator_name(uid))
            lines += [f"  changed  state {text}" for text in texts]
    return lines


def _changed(before: OperatorAccount, after: OperatorAccount, operator: str) -> Iterator[str]:
    was, now = (last_schemas(tables_of(account.subtasks)) for account in (before, after))
    for name, history in was.items():
        if name in now and written_type(history[-1].type) != written_type(now[name][-1].type):
            old, new = shown_types(history[-1].type, now[name][-1].type)
            yield f"'{name}' of '{operator}': was {old}, is {new}; old values are read as such"
