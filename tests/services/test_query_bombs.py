"""A query server of a store full of pickle bombs (`inputs/bombs.py`) answers typed values, rejects the others, and
unpickles nothing, for queries by HTTP, by Flight and through the client.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from inputs.bombs import STATES, WINDOWS, laid_out
from programs.queryable import queryable

from millstream import query
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.query.client import QueryClient, QueryRefusedError
from millstream.query.server import QueryServer, ServerSettings
from millstream.testing import EPOCH, Collect, Script, run

PICKLED = [name for name in STATES if name != "typed"]


@pytest.fixture(scope="module")
def marker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marker") / "marker"


@pytest.fixture(scope="module")
def server(marker: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    view = query.open(str(laid_out(tmp_path_factory.mktemp("store"), marker)), allow_undeclared=True)
    with QueryServer(view, ServerSettings(port=0, flight_port=0), view.store) as server:
        yield server
    assert not marker.exists(), "the server ran code from the store"


@pytest.mark.parametrize("name", [*PICKLED, *(f"keeper::{name}" for name in PICKLED)])
def test_http_rejects_pickles_at_any_depth_of_a_type(name: str, server: QueryServer, marker: Path) -> None:
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


def test_flight_rejects_pickles_and_answers_the_rest(server: QueryServer, marker: Path) -> None:
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


def test_the_client_reports_the_rejection(server: QueryServer, marker: Path) -> None:
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


class Last(KeyedProcessFunction):
    """Stores the last number of a key: first untyped, later as a number."""

    def __init__(self, descriptor: ValueStateDescriptor) -> None:
        self.descriptor = descriptor

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(queryable(self.descriptor))

    def process_element(self, value: tuple[str, int], ctx: Any) -> None:
        self.last.update(value[1])


def test_a_later_declared_type_affects_neither_earlier_epochs_nor_other_states() -> None:
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    descriptors = [
        ValueStateDescriptor("last", Types.PICKLED_BYTE_ARRAY()),
        ValueStateDescriptor("last", Types.LONG(), upgrade={Types.PICKLED_BYTE_ARRAY(): int}),
    ]
    for descriptor, epochs in zip(descriptors, (1, 3), strict=True):

        def build(env: StreamExecutionEnvironment, descriptor: ValueStateDescriptor = descriptor) -> None:
            pairs = env.add_source(Script([("a", 1), EPOCH, ("b", 2), EPOCH, ("c", 3)], type_info=pair)).uid("in")
            keyed = pairs.key_by(lambda value: value[0], Types.STRING())
            keyed.process(Last(descriptor)).uid("keeper").sink_to(Collect()).uid("out")
            keyed.map(lambda value: value[1], Types.LONG()).uid("numbers").key_by(
                lambda n: "all", Types.STRING()
            ).as_queryable_state("newest")

        run(build, store="test-query-typed-later", epochs=epochs, job_name="typed")
    view = query.open("memory://test-query-typed-later")
    settings = ServerSettings(port=0, flight_port=0)
    with (
        QueryServer(view, settings, view.store) as server,
        httpx.Client(base_url=f"{server.url}/v1/jobs/typed") as http,
        flight.connect(server.flight_url) as client,
    ):
        assert http.get("/states/newest/keys/all").json()["value"] == 2
        assert http.get("/states/last/keys/b").json()["value"] == 2
        assert http.get("/states/last/keys/a").json()["value"] == 1  # the job has rewritten it
        for path in ("/states/last/keys/a?epoch=1", "/states/last/scan?epoch=1"):
            answer = http.get(path)
            assert (answer.status_code, answer.json()["error"]) == (406, "pickled-state"), answer.text
        for question in ({"state": "last", "epoch": 1}, {"state": "last", "epoch": 1, "keys": ["a"]}):
            with pytest.raises(flight.FlightError, match="pickled-state"):
                client.do_get(flight.Ticket(json.dumps(question).encode())).read_all()
