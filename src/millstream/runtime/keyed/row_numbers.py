"""Numbers of rows: what tells the elements of a list, and the rows of a join's buffer, apart and keeps them in order.

A row is named by its key and its number, so a number that was given is never given again: not in a later visit, not in
a later epoch, and not in a later *round* of the same epoch (`jobs/epochs/rounds.py`), which knows nothing of the one
before but its accounts. Therefore each subtask tells in its account where the numbers of its tables go on, and who
opens a table goes on after the largest that any subtask has told: after a change of parallelism its keys come from
several.

    {"elements_numbered": {"history": 15032385541}}       lists
    {"rows_numbered": {"left": 712, "right": 90}}         the buffers of a join, which readers know by it

Elements of lists start anew at `epoch << 31` where that is further on. Accounts of older Millstreams tell nothing of
lists: their epochs had one round, so all their numbers are smaller than that.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from millstream.runtime.keyed.states import StateHandle

__all__ = ["last_row_numbers", "tell_row_numbers"]

_OF_LISTS = "elements_numbered"
_ACCOUNTS = (_OF_LISTS, "rows_numbered")


def last_row_numbers(kept: Mapping[str, Any]) -> dict[str, int]:
    """Where the numbers of every table go on, by name, from what each subtask acknowledged last.

    >>> last_row_numbers({"0": {"rows_numbered": {"left": 4}}, "1": {"rows_numbered": {"left": 7}}, "2": {}})
    {'left': 7}
    """
    numbers: dict[str, int] = {}
    for account, part in itertools.product(kept.values(), _ACCOUNTS):
        for name, number in account.get(part, {}).items():
            numbers[name] = max(number, numbers.get(name, 0))
    return numbers


def tell_row_numbers(account: dict[str, Any], before: Mapping[str, int], handles: Mapping[str, StateHandle]) -> None:
    """Put into an account where the numbers of its tables go on. Those of tables that the program does not declare
    (yet) are handed on as they were told."""
    for name, number in before.items():
        if name not in handles:
            account.setdefault(_OF_LISTS, {})[name] = number
    for name, handle in handles.items():
        if handle.next_number is not None:
            account.setdefault(handle.numbered_in, {})[name] = handle.next_number
