"""What is done beside the protocol: sources hear of a commit, progress is shown, a store is tidied.

None of it may change what became of an epoch. Whatever it raises is logged, and the job goes on: a committed epoch is
committed, whoever could not be told of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

__all__ = ["do_beside"]

_LOG = logging.getLogger(__name__)


def do_beside(what: str, act: Callable[[], object]) -> None:
    """Do it; a failure is told with `what` it was, and nothing else.

    >>> do_beside("counting to three", lambda: [1, 2, 3])
    """
    try:
        act()
    except Exception as error:
        _LOG.warning("%s failed, and the job goes on: %s", what, str(error) or type(error).__name__, exc_info=error)
