"""Flink's checkpoint storages, accepted as settings.

Here a job's checkpoints are the epochs in its store: `env.set_store(url)`, the key `millstream.store` or `--store`.
"""

from __future__ import annotations

from typing import Any

from millstream.datastream.streams.argument_checks import checked_count, checked_text
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.errors import NotAvailableError
from millstream.graph.notices import log_once
from millstream.pyflink_names import add_pyflink_names

__all__ = ["CheckpointStorage", "CustomCheckpointStorage", "FileSystemCheckpointStorage", "JobManagerCheckpointStorage"]


class CheckpointStorage:
    """A choice of storage; no effect here."""

    def __init__(self, j_checkpoint_storage: Any = None) -> None:
        no_java_object(self, j_checkpoint_storage)
        log_once(
            "checkpoint storage", "checkpoint storages have no effect here: set the job's store with env.set_store(url)"
        )


class JobManagerCheckpointStorage(CheckpointStorage):
    """In Flink: checkpoints in the job manager's memory."""

    DEFAULT_MAX_STATE_SIZE = 5 * 1024 * 1024

    def __init__(
        self,
        checkpoint_path: str | None = None,
        max_state_size: int | None = None,
        j_jobmanager_checkpoint_storage: Any = None,
    ) -> None:
        super().__init__(j_jobmanager_checkpoint_storage)
        self._checkpoint_path = checkpoint_path
        size = self.DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size
        self._max_state_size = checked_count("JobManagerCheckpointStorage, max_state_size", size)

    def get_checkpoint_path(self) -> str | None:
        return self._checkpoint_path

    def get_max_state_size(self) -> int:
        return self._max_state_size

    def get_savepoint_path(self) -> str | None:
        """None: the location of a savepoint is set when it is taken."""
        return None


class FileSystemCheckpointStorage(CheckpointStorage):
    """In Flink: checkpoints in a file system.

    >>> FileSystemCheckpointStorage("file:///checkpoints").get_checkpoint_path()
    'file:///checkpoints'
    """

    MAX_FILE_STATE_THRESHOLD = 1024 * 1024

    def __init__(
        self,
        checkpoint_path: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int | None = None,
        j_filesystem_checkpoint_storage: Any = None,
    ) -> None:
        super().__init__(j_filesystem_checkpoint_storage)
        self._checkpoint_path = checked_text("FileSystemCheckpointStorage, checkpoint_path", checkpoint_path)
        threshold = 20 * 1024 if file_state_size_threshold is None else file_state_size_threshold
        self._threshold = checked_count("FileSystemCheckpointStorage, file_state_size_threshold", threshold, least=0)
        self._write_buffer_size = checked_count(
            "FileSystemCheckpointStorage, write_buffer_size", 4096 if write_buffer_size is None else write_buffer_size
        )

    def get_checkpoint_path(self) -> str:
        return self._checkpoint_path

    def get_savepoint_path(self) -> str | None:
        """None: the location of a savepoint is set when it is taken."""
        return None

    def get_min_file_size_threshold(self) -> int:
        return self._threshold

    def get_write_buffer_size(self) -> int:
        """The write buffer size, at least the threshold, as in Flink."""
        return max(self._write_buffer_size, self._threshold)


class CustomCheckpointStorage(CheckpointStorage):
    """In Flink: a storage written in Java."""

    def __init__(self, j_custom_checkpoint_storage: Any = None) -> None:
        raise NotAvailableError(
            "CustomCheckpointStorage: it wraps a Java class and Millstream has no Flink JVM. Use env.set_store(url)"
        )


add_pyflink_names(globals())
