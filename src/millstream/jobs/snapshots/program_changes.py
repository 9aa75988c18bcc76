"""Warns the owner of a job about changes of its program that affect its state.

**Operators without a uid.** State is matched by uid. A uid derived from the program changes with the program. The
snapshot is then rejected and nothing is lost, but the warning must be earlier. It names the uid that the operator has
now: set explicitly, it retains the saved state.

**States of another type.** A function's declarations are known when it is opened in a task, so this is logged once,
when the first epoch is committed; it completes the comparison of a program with its snapshot
(`checkpoint/restoring.py`). A change that is not possible fails that epoch, and nothing is committed.
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
    """The warning about a manifest; "" if all of its operators with state have an explicit uid."""
    keeping = [uid for uid, account in accounts_of(manifest).items() if account.keeps_state]
    names = derived_uids(manifest, keeping)
    if not names:
        return ""
    lines = "".join(f'\n  {name}: .uid("{uid}")' for uid, name in names.items())
    return (
        "state is matched by uid, and some operators have one that is derived from their inputs: it changes "
        f"when the program does, and their state is then not found. Set the uids they have now:{lines}"
    )


def warn_of_derived_uids(manifest: Manifest) -> None:
    """Log the warning, if there is one."""
    text = derived_uids_text(manifest)
    if text:
        _LOG.warning("%s", text)


def log_changed_types(before: Manifest, after: Manifest) -> None:
    """Log each state whose type in `after` differs from `before`."""
    for line in changed_types(before, after):
        _LOG.warning("%s", line)


def changed_types(before: Manifest, after: Manifest) -> list[str]:
    """One line for each state whose type in `after` differs from `before`."""
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
