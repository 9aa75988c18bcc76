"""The local tier: a cache, on a task's machine, of the files that tasks read from and write to an object store.

    sealed_files     one file of the tier: content, then a trailer with its length and checksum
    process_folder   the files that belong to one process, alive or dead
    room             the size of the tier, and eviction
    local_tier       the folder of a machine, shared by all its processes
    side_by_side     requests on concurrent threads
    uploads          the threads that upload new files to the store
    tiered_store     the store as tasks see it

The store is authoritative. A file in the tier is a copy that may be removed at any time, or a file to be uploaded,
which no manifest names before the store has it.
"""

from __future__ import annotations

__all__: list[str] = []
