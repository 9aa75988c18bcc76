"""`scripts/try-server` starts a temporary server, and stops it at the end."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "try-server"


def test_a_server_answers_at_the_address_it_prints_until_ctrl_c() -> None:
    psycopg = pytest.importorskip("psycopg")
    with subprocess.Popen([sys.executable, str(SCRIPT), "postgres"], stdout=subprocess.PIPE, text=True) as script:
        try:
            assert script.stdout is not None
            line = script.stdout.readline()
            address = re.fullmatch(r"postgres answers at (\S+)\. Ctrl-C ends it\.\n", line)
            assert address is not None, line
            with psycopg.connect(address.group(1)) as connection:
                assert connection.execute("SELECT 1").fetchone() == (1,)
            script.send_signal(signal.SIGINT)
            assert script.wait(120) == 0
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(address.group(1))
        finally:
            script.kill()
