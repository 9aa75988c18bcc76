"""`millstream sql` as a person uses it: at a small terminal, with a query that has no end and Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROWS, COLUMNS = 16, 60
PATIENCE_S = 120.0
PROMPT = "Millstream SQL>"
_ESCAPES = re.compile(r"\x1b(\[[?>=0-9;]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_=>78])")


class Client:
    """The client at a terminal of few rows: what it has written since, without colours and moves."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process, self._terminal, self._written = process, terminal, ""

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def wait_for(self, pattern: str) -> None:
        """Wait until the client has written this, and forget what came before it."""
        deadline_s = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, _ESCAPES.sub("", self._written))) is None:
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, f"{pattern!r} did not come; written was {self._written[-2000:]!r}"
            if select.select([self._terminal], [], [], left_s)[0]:
                self._read()
        self._written = _ESCAPES.sub("", self._written)[found.end() :]

    def ended(self) -> int:
        """Its exit code. What it still writes is read: a full pty would hold it up."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < deadline_s:
            if select.select([self._terminal], [], [], 0.1)[0] and not self._read():
                break
        return self.process.wait(PATIENCE_S)

    def _read(self) -> bool:
        try:
            data = os.read(self._terminal, 65_536).decode(errors="replace")
        except OSError:  # nobody holds the other end any more
            return False
        if "\x1b[6n" in data:  # where is the cursor? A terminal answers
            self.type("\x1b[1;1R")
        self._written += data
        return True


@contextmanager
def client(folder: Path) -> Iterator[Client]:
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    size = ("COLUMNS", "LINES")  # which would be believed before the terminal
    environment = {name: value for name, value in os.environ.items() if name not in size}
    environment |= {"TERM": "xterm", "HOME": str(folder)}
    command = [sys.executable, "-m", "millstream.cli", "sql"]
    process = subprocess.Popen(
        command, stdin=end, stdout=end, stderr=end, cwd=folder, env=environment, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal to it
    )  # fmt: skip
    os.close(end)
    try:
        yield Client(process, terminal)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def test_ctrl_c_ends_the_query_and_not_the_client(tmp_path: Path) -> None:
    with client(tmp_path) as person:
        person.wait_for(PROMPT)
        person.type("CREATE TABLE endless (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '5');\r")
        person.wait_for(r"OK\s")
        person.type("SELECT 'row ' || CAST(n AS STRING) AS shown FROM endless;\r")
        person.wait_for(r"row -?\d+")
        person.type("\x03")
        person.wait_for(PROMPT)
        person.type("SELECT 'still ' || 'here' AS answer;\r")
        person.wait_for("still here")
        person.type("\x03")  # at the prompt, or in the view of the result: it ends neither client nor session
        person.type("QUIT;\r")
        assert person.ended() == 0
