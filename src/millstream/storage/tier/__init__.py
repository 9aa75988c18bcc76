"""The local tier: what tasks read from and write to an object store, kept on the disk of their machine.

sealed_files     one file of the tier: content, and behind it its length and checksum
process_folder   what belongs to one process, alive or dead
room             how many bytes there are, and what goes when there are too many
local_tier       the folder of a machine, shared by all its processes
uploads          the threads that bring new files to the store
tiered_store     the store as tasks see it
"""

from __future__ import annotations

__all__: list[str] = []
