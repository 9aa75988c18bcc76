"""Numbers of rows: what tells the elements of a list, and the rows of a join's buffer, apart and keeps them in order.

A row is named by its key and its number, so a number that was given is never given again: not in a later visit, not in
a later epoch, and not in a later *round* of the same epoch (`jobs/epochs/rounds.py`), which knows nothing of the one
before but its accounts. Therefore each subtask tells in its account where the numbers of its tables go on, and who
opens a table goes on after the largest that any subtask has told: after a change of parallelism its keys come from
several.

    elements_numbered={"history": 15032385541}        lists
    rows_numbered={"left": 712, "right": 90}          the buffers of a join, which readers know by it

Elements of lists start anew at `epoch << 31` where that is further on. Accounts of older Millstreams tell nothing of
lists: their epochs had one round, so all their numbers are smaller than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from millstream.runtime.keyed.states import StateHandle
from millstream.state.stored.accounts import SubtaskAccount

__all__ = ["last_row_numbers", "with_row_numbers"]


def last_row_numbers(accounts: Iterable[SubtaskAccount]) -> dict[str, int]:
    """Where the numbers of every table go on, by name, from what each subtask acknowledged last.

    >>> last_row_numbers([SubtaskAccount(rows_numbered={"left": 4}), SubtaskAccount(rows_numbered={"left": 7})])
    {'left': 7}
    """
    numbers: dict[str, int] = {}
    for account in accounts:
        for name, number in (*account.elements_numbered.items(), *account.rows_numbered.items()):
            numbers[name] = max(number, numbers.get(name, 0))
    return numbers


def with_row_numbers(
    account: SubtaskAccount, before: Mapping[str, int], handles: Mapping[str, StateHandle]
) -> SubtaskAccount:
    """The account with where the numbers of these tables go on. Those of tables that the program does not declare (yet)
    are handed on as they were told."""
    elements, rows = dict(account.elements_numbered), dict(account.rows_numbered)
    elements |= {name: number for name, number in before.items() if name not in handles}
    for name, handle in handles.items():
        if handle.next_number is not None:
            (rows if handle.numbers_rows else elements)[name] = handle.next_number
    return replace(account, elements_numbered=elements, rows_numbered=rows)
