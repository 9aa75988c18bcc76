"""Runs commands in Redis, each exactly once, even non-idempotent ones such as `INCR`.

Tasks create the commands and stage them with their epoch. The driver then runs them in order, some at a time, in a
script that Redis executes atomically. The script also advances the **mark** of the job and sink, which records how many
commands of which epoch were run:

    millstream:{committer}      epoch 7   commands 2000

Commands and mark change together or not at all, so a repeat after a crash continues at the mark, and a replaced
driver reads a newer epoch and runs nothing. If Redis refuses a command (a list where a hash is expected),
the mark advances up to it: the preceding commands of the script stay, and are not rerun after the cause is corrected.

This holds for one Redis server that persists acknowledged writes (`appendonly yes`, `appendfsync always`). A server
that loses its last second loses marks and values of the same second, so no command is run twice. Redis Cluster does not
support scripts with keys on several nodes: it refuses them, and the error explains this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from millstream.connectors.contracts import CommitId, Json, RestorePoint, Sink, SinkWriter, WriterContext
from millstream.connectors.redis.commands import CommandMaker, command_columns
from millstream.connectors.refused_rows import RefusedRow, RefusedRowsError, printable
from millstream.connectors.service_urls import checked_url
from millstream.connectors.staged_columns import StagedColumns, read_numbered_columns
from millstream.errors import ConnectorAwayError, ConnectorError, PlatformError
from millstream.records.batch import Batch
from millstream.storage.certificates import certificate_refusal
from millstream.storage.store import Store

__all__ = ["RedisSink"]

_COMMANDS_AT_ONCE = 500
"""Maximum number of commands per script: other clients of the server wait in the meantime."""
_SCRIPT_BYTES_MAX = 8 << 20
"""Approximate maximum size of a script's commands in bytes."""

_PASSING = ("READONLY", "NOREPLICAS", "MISCONF", "OOM", "LOADING", "MASTERDOWN", "BUSY")
"""Prefixes of Redis errors that writes are unavailable: after a failover, with a full disk or memory."""

_ABOUT_US = ("NOPERM", "NOAUTH", "CROSSSLOT", "MOVED")
"""Prefixes of Redis errors that are unrelated to the command: any other one would be refused, too."""

_SCRIPT = """
local mark = redis.call('HMGET', KEYS[1], 'epoch', 'commands')
local epoch, commands = tonumber(mark[1] or '-1'), tonumber(mark[2] or '0')
local own_epoch, before = tonumber(ARGV[1]), tonumber(ARGV[2])
if epoch > own_epoch or (epoch == own_epoch and commands ~= before) or (epoch < own_epoch and before ~= 0) then
    return {'elsewhere', tostring(epoch), tostring(commands)}
end
local at, done = 3, before
while at <= #ARGV do
    local count = tonumber(ARGV[at])
    local answer = redis.pcall(unpack(ARGV, at + 1, at + count))
    if type(answer) == 'table' and answer.err then
        redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'commands', tostring(done))
        return {'refused', answer.err, tostring(done)}
    end
    done = done + 1
    at = at + 1 + count
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'commands', tostring(done))
return {'done', tostring(own_epoch), tostring(done)}
"""


class RedisSink(Sink):
    """Runs commands made from records, once each. `url`: `redis://user:password@host:port/database`, or
    `rediss://…`."""

    reports_refused_rows = True

    def __init__(self, url: str, maker: CommandMaker, timeout_s: float = 10.0) -> None:
        parts = checked_url(url, "RedisSink", ("redis", "rediss", "unix"))
        self._url, self._maker, self._timeout_s = url, maker, timeout_s
        self._place = f"{parts.hostname or parts.path}:{parts.port or 6379}"  # without user and password
        self._client: Any = None

    def __getstate__(self) -> dict[str, Any]:
        # A connection belongs to the driver.
        return {**self.__dict__, "_client": None}

    def opened(self, session: Any) -> Sink:
        with _errors_of(self._place):
            self._connected().ping()
        return self

    def writer(self, context: WriterContext) -> SinkWriter:
        return _CommandWriter(self._maker, context)

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        if not publish:
            return
        with _errors_of(self._place):
            self._run(commit, publish, store)

    def _run(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        client, mark = self._connected(), f"millstream:{commit.committer}"
        epoch, done = (int(part or 0) for part in client.hmget(mark, "epoch", "commands"))
        if epoch > commit.epoch:
            return  # already published, by this driver or the one that replaced it
        if epoch < commit.epoch:
            done = 0
        script = client.register_script(_SCRIPT)
        remaining = _commands(publish, store, done)
        while batch := _next_commands(remaining):
            arguments: list[Any] = [commit.epoch, done]
            for command in batch:
                arguments += (len(command.words), *command.words)
            word, detail, count = (part.decode("utf-8", "replace") for part in script(keys=[mark], args=arguments))
            if word == "refused" and detail.startswith(_PASSING):
                raise ConnectorAwayError(f"Redis at {self._place} does not accept writes now ({detail})")
            if word == "refused":
                raise _refused(self._place, printable(detail), batch[int(count) - done])
            if word == "elsewhere":
                raise ConnectorAwayError(
                    f"Redis at {self._place}: another driver publishes {commit} too, and has reached command {count} "
                    f"of epoch {detail}, while this one is at {done}. A retry continues from there"
                )
            done += len(batch)

    def _connected(self) -> Any:
        if self._client is None:
            try:
                import redis
            except ImportError as error:
                raise PlatformError("RedisSink needs the package redis: pip install 'millstream[redis]'") from error
            self._client = redis.Redis.from_url(
                self._url, socket_timeout=self._timeout_s, socket_connect_timeout=self._timeout_s
            )
        return self._client

    def after_restore(self, pending: Json, point: RestorePoint) -> tuple[Json, str]:
        return pending, "values written to Redis after that epoch stay until they are overwritten"

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def describe(self) -> str:
        return f"redis {self._place}, {self._maker.describe()}"


@contextmanager
def _errors_of(place: str) -> Iterator[None]:
    """Converts client errors to ours: transient ones, and permanent ones."""
    import redis

    try:
        yield
    except (redis.AuthenticationError, redis.exceptions.AuthorizationError) as error:
        message = f"Redis at {place} denied access ({error}). Check user and password in the url"
        raise ConnectorError(message) from None
    except (redis.ConnectionError, redis.TimeoutError, redis.exceptions.BusyLoadingError) as error:
        if (reason := certificate_refusal(error)) is not None:
            raise ConnectorError(f"Redis at {place}: {reason}. Check the address, and the certificate") from error
        raise ConnectorAwayError(f"Redis at {place} does not answer ({error})") from error
    except (redis.exceptions.ReadOnlyError, redis.exceptions.OutOfMemoryError) as error:
        raise ConnectorAwayError(f"Redis at {place} does not accept writes now ({error})") from error
    except redis.ResponseError as error:
        if str(error).startswith(_PASSING):
            raise ConnectorAwayError(f"Redis at {place} does not accept writes now ({error})") from error
        hint = ". Redis Cluster cannot run one script over several nodes: use the url of a single server"
        crosses = "CROSSSLOT" in str(error) or "cluster" in str(error).lower()
        raise ConnectorError(f"Redis at {place} refuses: {error}{hint if crosses else ''}") from error


def _refused(place: str, reason: str, command: _Command) -> ConnectorError:
    words = command.words
    shown = " ".join(repr(word[:80])[1:] for word in words[:4]) + (" …" if len(words) > 4 else "")
    message = (
        f"Redis at {place} refuses the command {shown}: {reason}. The commands before it were run, and are not run "
        "again"
    )
    if reason.startswith(_ABOUT_US):
        return ConnectorError(f"{message}. Grant the permission to the user of the url, and start the job again")
    return RefusedRowsError(message, [RefusedRow(command.item, command.row, reason, shown)], continues_after=True)


@dataclass(frozen=True)
class _Command:
    """A staged command: a row of an item."""

    item: int
    row: int
    words: list[bytes]


class _CommandWriter(SinkWriter):
    def __init__(self, maker: CommandMaker, context: WriterContext) -> None:
        self._maker, self._staged = maker, StagedColumns(context)

    def write(self, batch: Batch) -> None:
        self._staged.add(command_columns(self._maker, batch))

    def stage(self) -> Sequence[Json]:
        return self._staged.stage()


def _next_commands(commands: Iterator[_Command]) -> list[_Command]:
    """The commands of the next script."""
    batch: list[_Command] = []
    size = 0
    for command in islice(commands, _COMMANDS_AT_ONCE):
        batch.append(command)
        size += sum(map(len, command.words))
        if size >= _SCRIPT_BYTES_MAX:
            break
    return batch


def _commands(publish: Sequence[Json], store: Store, done: int) -> Iterator[_Command]:
    """The commands after the first `done`. Skipped ones stay columns, since each refused command ends a run."""
    for item, staged in enumerate(publish):
        for columns, numbers in read_numbered_columns(staged, store):
            for start in range(min(done, columns.num_rows), columns.num_rows, _COMMANDS_AT_ONCE):
                batch = columns.column(0).slice(start, _COMMANDS_AT_ONCE).to_pylist()
                for row, words in zip(numbers[start : start + len(batch)].tolist(), batch, strict=True):
                    yield _Command(item, row, words)
            done = max(0, done - columns.num_rows)
