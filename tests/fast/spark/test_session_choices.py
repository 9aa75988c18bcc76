"""Which master and which Python a session gets: on one machine the program's own, on a cluster the executors'."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from millstream.spark import session
from millstream.spark.session import chosen_master

THIS_VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(autouse=True)
def _not_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(session, "_USERS_PYTHON", None)


def test_sparks_own_name_for_the_master_wins() -> None:
    assert chosen_master("local[*]", {}) == "local[*]"
    assert chosen_master("local[*]", {"spark.master": "spark://a:7077"}) == "spark://a:7077"


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,512]"])
def test_on_one_machine_tasks_run_in_the_programs_python_whatever_is_set(
    master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_USERS_PYTHON", "/opt/other/python")
    assert session._interpreter_of_tasks(master, {"spark.pyspark.python": "elsewhere"}) == sys.executable


def test_on_a_cluster_it_is_the_one_that_is_named_and_never_the_drivers_path(monkeypatch: pytest.MonkeyPatch) -> None:
    assert session._interpreter_of_tasks("spark://a:7077", {}) == THIS_VERSION
    monkeypatch.setattr(session, "_USERS_PYTHON", "/opt/python")
    assert session._interpreter_of_tasks("yarn", {}) == "/opt/python"
    named = {"spark.pyspark.python": "./environment/bin/python"}
    assert session._interpreter_of_tasks("yarn", named) == "./environment/bin/python"


def test_workers_are_told_how_to_keep_memory_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in session.WORKER_ENVIRONMENT:
        monkeypatch.delenv(key, raising=False)
    assert session._worker_environment()["spark.executorEnv.MIMALLOC_ALLOW_THP"] == "0"
    monkeypatch.setenv("MIMALLOC_ALLOW_THP", "1")
    assert session._worker_environment()["spark.executorEnv.MIMALLOC_ALLOW_THP"] == "1"


def pressed_ctrl_c(after_s: float) -> None:
    """As a terminal does it, to this process, from another thread."""
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(after_s, signal.pthread_kill, (main, signal.SIGINT)).start()


def test_spark_starts_beside_the_main_thread_where_it_would_make_ctrl_c_its_own() -> None:
    """Spark's own way cancels all jobs of the application: who ends one query would fail the others."""
    threads: list[threading.Thread] = []
    session.start_undisturbed(lambda: threads.append(threading.current_thread()))
    assert threads[0] is not threading.main_thread()
    elsewhere = threading.Thread(
        target=lambda: session.start_undisturbed(lambda: threads.append(threading.current_thread()))
    )
    elsewhere.start()
    elsewhere.join()
    assert threads[1] is elsewhere


def test_ctrl_c_while_spark_starts_counts_when_it_has_started() -> None:
    started = threading.Event()

    def start() -> None:
        pressed_ctrl_c(0)
        started.wait(0.3)
        started.set()

    with pytest.raises(KeyboardInterrupt):
        session.start_undisturbed(start)
    assert started.is_set()


def test_the_second_ctrl_c_does_not_wait_for_the_start() -> None:
    goes_on = threading.Event()

    def start() -> None:
        pressed_ctrl_c(0)
        pressed_ctrl_c(0.2)
        goes_on.wait(20)

    with pytest.raises(KeyboardInterrupt):
        session.start_undisturbed(start)
    assert not goes_on.is_set()
    goes_on.set()


def test_what_a_start_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        session.start_undisturbed(lambda: 1 / 0)


@pytest.mark.slow
def test_jobs_that_start_at_the_same_time_all_find_pandas_whole() -> None:
    """Spark imports it when it makes a plan, in the thread of each job."""
    program = """
from concurrent.futures import ThreadPoolExecutor
from millstream.spark import session

def start(_):
    session._import_what_spark_imports_late()
    import pandas
    return pandas.core is not None

with ThreadPoolExecutor(8) as pool:
    assert all(pool.map(start, range(8)))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)
