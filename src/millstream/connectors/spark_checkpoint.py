"""The checkpoint of the Spark query that feeds a streaming DataFrame, for a job that inherits another one's batches.

The query of a forked job must begin with the row after the last batch that the job inherits, and the query of the
original must not notice. So the original's checkpoint is copied as it was at that batch: the logs of offsets and
commits up to it, all that the sources and operators of the query keep, and another id, for Spark refuses two queries of
one id. What Spark has written there since belongs to later batches, which are found by number, so it does no harm.
"""

from __future__ import annotations

import json
import re
import uuid

from millstream.connectors.batch_series import InheritedBatches, scratch_folder
from millstream.errors import StoreError
from millstream.storage.store import Store, open_store

__all__ = ["CHECKPOINT", "inherit_checkpoint"]

CHECKPOINT = "checkpoint"
_LOGGED = re.compile(r"(?:offsets|commits)/(\d+)")


def inherit_checkpoint(name: str, past: InheritedBatches, store: Store, folder: str) -> None:
    """Put the checkpoint of the query that stored the batches of `past` into `folder` of `store`, as of the last."""
    if past.through < 0:
        return  # it has stored nothing: the new query begins where any would
    base, past_folder = open_store(past.store), scratch_folder(name, past.series, CHECKPOINT)
    files = {file.removeprefix(f"{past_folder}/"): file for file in base.list(past_folder)}
    if f"offsets/{past.through}" not in files:
        raise StoreError(
            f"Store {past.store}: Spark's checkpoint of DataFrame {name!r} does not say where batch {past.through} "
            f"ended (offsets/{past.through} is missing), so no other job can go on after it. "
            f"Start the job there once, then fork it again."
        )
    for file, past_name in files.items():
        log_match = _LOGGED.fullmatch(file)
        is_hidden = file.rpartition("/")[2].startswith(".")
        if not (is_hidden or file == "metadata" or (log_match is not None and int(log_match.group(1)) > past.through)):
            store.put(f"{folder}/{file}", base.get(past_name))
    store.put(f"{folder}/metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
