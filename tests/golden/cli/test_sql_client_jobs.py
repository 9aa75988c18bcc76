"""Jobs started in `millstream sql`: detached ones outlive the client, others are resumed."""

from __future__ import annotations

import re
from pathlib import Path

from screens.sql_terminals import PROMPT, carry_out, sql_terminal
from screens.terminal import Terminal
from waits.patience import until


def described(folder: Path) -> list[str]:
    """The statements that define a monitored folder and an output folder."""
    place = "'connector' = 'filesystem', 'format' = 'csv', 'path'"
    return [
        f"CREATE TABLE i (n INT) WITH ({place} = '{folder / 'in'}', 'source.monitor-interval' = '100 ms');",
        f"CREATE TABLE o (n INT) WITH ({place} = '{folder / 'out'}');",
    ]


def written(folder: Path) -> list[str]:
    return sorted(line for path in (folder / "out").glob("[!.]*") for line in path.read_text().splitlines())


def arrive(folder: Path, name: str, text: str) -> None:
    (folder / f".{name}").write_text(text)
    (folder / f".{name}").rename(folder / "in" / name)


def sentence(person: Terminal) -> str:
    """The text of the screen, in one line."""
    return person.screen.all_text.replace("\n", " ")


def test_a_detached_job_outlives_its_client_and_the_next_client_lists_and_stops_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    arrive(tmp_path, "1", "1\n2\n")
    with sql_terminal(tmp_path, "--detach") as person:
        for statement in described(tmp_path):
            carry_out(person, statement)
        person.type("INSERT INTO o SELECT n * 10 FROM i;")
        person.read_until(rf"STOP\sJOB\sends\sit(.|\n)*{PROMPT}")
        person.type("QUIT;")
        assert person.read_to_end() == 0
        assert re.search(
            r"job [0-9a-f]{32} \(insert-into_\S+\) continues: millstream stop [0-9a-f]{8} ends it", sentence(person)
        )
    arrive(tmp_path, "2", "3\n")
    until("the job reads on without its client", lambda: written(tmp_path) == ["10", "20", "30"])
    with sql_terminal(tmp_path) as person:
        person.type("SHOW JOBS;")
        person.read_until("1 row in set")
        job = re.search(r"\| ([0-9a-f]{32}) \|.*RUNNING", sentence(person))
        assert job is not None, person.screen.text
        person.resize(24, 400)  # paths are not wrapped
        person.type(f"STOP JOB '{job[1]}' WITH SAVEPOINT;")
        person.read_until(rf"savepoint path(.|\n)*{PROMPT}")
        person.type("SHOW JOBS;")
        person.read_until(rf"Empty set\n{PROMPT}")


def test_quit_prints_how_to_resume_the_job_and_that_works(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    arrive(tmp_path, "1", "1\n2\n")
    with sql_terminal(tmp_path) as person:
        for statement in described(tmp_path):
            carry_out(person, statement)
        person.type("INSERT INTO o SELECT n FROM i;")
        person.read_until(rf"outlive\sit\]\n{PROMPT}")
        until("the first file is written", lambda: written(tmp_path) == ["1", "2"])
        person.resize(24, 200)  # paths are not wrapped
        person.type("QUIT;")
        assert person.read_to_end() == 0
        words = re.search(
            r"has stopped at epoch \d+, as this client ends\] \[to resume it: (SET '.*?' = '.*?');", sentence(person)
        )
        assert words is not None, person.screen.text
    arrive(tmp_path, "2", "3\n")
    with sql_terminal(tmp_path) as person:
        for statement in (f"{words[1]};", *described(tmp_path)):
            carry_out(person, statement)
        person.type("INSERT INTO o SELECT n FROM i;")
        until("the second file is written, and the first not again", lambda: written(tmp_path) == ["1", "2", "3"])
        person.read_until(rf"outlive\sit\]\n{PROMPT}")
        person.type("QUIT;")
        assert person.read_to_end() == 0
    assert written(tmp_path) == ["1", "2", "3"]


def test_output_of_a_job_appears_above_the_prompt(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with sql_terminal(tmp_path) as person:
        carry_out(person, described(tmp_path)[0])
        carry_out(person, "CREATE TABLE p (n INT) WITH ('connector' = 'print');")
        person.type("INSERT INTO p SELECT n FROM i;")
        person.read_until(rf"outlive\sit\]\n{PROMPT}")
        arrive(tmp_path, "1", "41\n42\n")
        person.read_until(rf"\n\d?>? ?\+I\[42\]\n+{PROMPT}")
        assert "SQL> +I" not in person.screen.text and "SQL> 1>" not in person.screen.text
