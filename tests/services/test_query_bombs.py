"""A query server of a store that is full of bombs (`bombs.py`): it answers what is typed, refuses the rest, and opens
nothing, whether it is asked by HTTP, by Flight or through the client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from bombs import STATES, WINDOWS, laid_out

from millstream import query
from millstream.query.client import QueryClient, QueryRefusedError
from millstream.query.server import OpenedJob, QueryServer, ServerSettings

PICKLED = [name for name in STATES if name != "typed"]


@pytest.fixture(scope="module")
def marker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marker") / "marker"


@pytest.fixture(scope="module")
def server(marker: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    view = query.open(str(laid_out(tmp_path_factory.mktemp("store"), marker)), allow_undeclared=True)
    with QueryServer(OpenedJob(view), ServerSettings(port=0, flight_port=0), view.store) as server:
        yield server
    assert not marker.exists(), "the server ran code from the store"


@pytest.mark.parametrize("name", [*PICKLED, *(f"keeper::{name}" for name in PICKLED)])
def test_http_refuses_pickles_however_deep_inside_a_type_they_are(name: str, server: QueryServer, marker: Path) -> None:
    with httpx.Client(base_url=f"{server.url}/v1/jobs/bombs") as http:
        paths = ("/keys/a", "/keys/a?epoch=1", "/windows/a", "/series/a", "/scan", "/watch/a")
        answers = [http.get(f"/states/{name}{path}") for path in paths]
        answers.append(http.post("/read", json={"reads": [{"state": name, "keys": ["a"]}]}))
        answers.append(http.post(f"/states/{name}/keys", json={"keys": ["a"]}))
        for answer in answers:
            assert (answer.status_code, answer.json()["error"]) == (406, "pickled-state"), answer.text
        told = {state["name"]: state["is_pickled"] for state in http.get("/states").json()["states"]}
        assert told[name] and not told["typed"]
        assert http.get("/states/typed/keys/a").json()["value"] == 3
    assert not marker.exists()


def test_flight_refuses_them_and_answers_the_rest(server: QueryServer, marker: Path) -> None:
    keys = pa.table({"key": ["a"]})
    with flight.connect(server.flight_url) as client:
        for name in [*PICKLED, "typed"]:
            descriptor = flight.FlightDescriptor.for_command(json.dumps({"state": name}).encode())
            try:
                writer, reader = client.do_exchange(descriptor)
                with writer:
                    writer.begin(keys.schema)
                    writer.write_table(keys)
                    writer.done_writing()
                    answer = reader.read_all()
                assert name == "typed" and answer.column("value").to_pylist() == [3]
            except flight.FlightError as error:
                assert name != "typed" and "pickled-state" in str(error)
            if name != "typed":
                for question in ({"state": name}, {"state": name, "keys": ["a"]}):
                    with pytest.raises(flight.FlightError, match="pickled-state"):
                        client.do_get(flight.Ticket(json.dumps(question).encode())).read_all()
    assert not marker.exists()


def test_the_client_tells_the_refusal(server: QueryServer, marker: Path) -> None:
    with QueryClient([server.url]) as client:
        for name in PICKLED:
            with pytest.raises(QueryRefusedError, match="without a declared type") as caught:
                client.get(name, "a")
            assert caught.value.code == "pickled-state"
        with pytest.raises(QueryRefusedError) as caught:
            client.windows(WINDOWS, "a")
        assert caught.value.code == "pickled-state"
        assert client.get("typed", "a").value == 3
    assert not marker.exists()
