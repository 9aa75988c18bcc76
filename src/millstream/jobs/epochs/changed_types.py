"""Which states have another type since the job was started: told once, when the first epoch is committed.

What a function declares is known when it is opened in a task, so this is the last line of the difference between a
program and its snapshot (`checkpoint/restoring.py` has the others). A change that cannot be made fails that epoch, and
nothing is committed.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.checkpoint.manifest import Manifest
from millstream.state.schemas.saved_types import shown_types, written_type
from millstream.state.schemas.state_schemas import last_schemas
from millstream.state.stored.accounts import OperatorAccount, accounts_of, tables_of

__all__ = ["changed_types"]


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
