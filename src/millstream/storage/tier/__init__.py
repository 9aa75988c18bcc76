"""The local tier: what tasks read from and write to an object store, kept on the disk of their machine.

    sealed_files     one file of the tier: content, and behind it its length and checksum
    process_folder   what belongs to one process, alive or dead
    room             how many bytes there are, and what goes when there are too many
    local_tier       the folder of a machine, shared by all its processes
    side_by_side     requests on threads, for who waits for all of them
    uploads          the threads that bring new files to the store
    tiered_store     the store as tasks see it

The store is the truth. What is here is a copy that may go at any moment, or a file on its way that no manifest names
before the store has it.
"""

from __future__ import annotations

__all__: list[str] = []
