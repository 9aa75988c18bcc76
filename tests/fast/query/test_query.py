"""Live queries: what a running job keeps is what a replay of its input up to that epoch gives, never going backwards.

The programs run in memory; `millstream.query` looks into the store they write, as a service beside the job would.
"""

from __future__ import annotations

import datetime as dt
import pickle
import threading
import time
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.queryable import EPOCHS, PAIR, Keeps, Mean, check_answers, keeping, queryable
from stores.stored_leases import leases_of
from waits.refusals import Refused

from millstream import query
from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.retention import RetentionPolicy
from millstream.common import Configuration, Time, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.errors import JobFailedError, ProgramError, StoreError
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.storage import open_store
from millstream.testing import CRASH, EPOCH, Collect, ManualClock, Pause, Script, run

STORES = count()


def new_store() -> str:
    return f"test-query-{next(STORES)}"


def kept(build: Any, store: str | None = None, *, view: dict[str, Any] | None = None, **options: Any) -> query.JobView:
    """Run a program and open what it left behind."""
    store = store or new_store()
    run(build, store=store, **options)
    return query.open(f"memory://{store}", unpickle=pickle.loads, **(view or {}))


STORY = (("a", 1), ("b", 2), EPOCH, ("a", 5), ("c", 7), EPOCH, ("b", -1), EPOCH)


# --- answers ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(deadline=None, max_examples=3)
@given(EPOCHS, st.booleans(), st.sampled_from([1, 3]), st.sampled_from([None, Types.STRING()]))
def test_answers_at_every_epoch_are_those_of_a_replay(
    epochs: list[list[tuple[str, int]]], crash: bool, parallelism: int, key_type: Any
) -> None:
    check_answers(epochs, crash, parallelism, key_type)


def test_values_come_as_columns_of_their_types() -> None:
    with kept(keeping(*STORY)).at(epoch=2) as view:
        keys = pa.array(["b", "nobody", "a"])
        assert view.get_columns("total", keys).to_pydict() == {
            "key": ["b", "nobody", "a"],
            "found": [True, False, True],
            "value": [2, None, 6],
        }
        assert view.get_columns("place", keys).column("value").to_pylist()[2] == {"name": "a", "visits": 5}
        assert view.get_columns("seen", keys).column("value").to_pylist() == [[2], None, [1, 5]]
        assert view.get_columns("names", keys).column("value").to_pylist() == [[(2, "2")], None, [(1, "1"), (5, "5")]]
        assert view.get_columns("anything", keys).schema.field("value").type == pa.binary()
        assert view.get_columns("total", pa.chunked_array([["a"], ["b"]])).column("value").to_pylist() == [6, 2]
        assert view.get_columns("total", pa.array(["a"]).dictionary_encode()).column("value").to_pylist() == [6]


def test_what_can_be_asked_for_is_told_without_the_program() -> None:
    job = kept(keeping(*STORY, key_type=Types.STRING()), job_name="clicks")
    told = {state.name: (state.kind, state.key_type, state.value_type, state.is_pickled) for state in job.states()}
    assert told == {
        "total": ("value", "STRING", "LONG", False),
        "place": ("value", "STRING", {"row": [["name", "STRING"], ["visits", "LONG"]]}, False),
        "anything": ("value", "STRING", "PICKLED", True),
        "seen": ("list", "STRING", "LONG", False),
        "names": ("map", "STRING", "STRING", False),
        "loose": ("map", "STRING", "PICKLED", True),
        "largest": ("reducing", "STRING", "LONG", False),
        "mean": ("aggregating", "STRING", {"tuple": ["LONG", "LONG"]}, False),
    }
    assert job.job == "clicks" and {(state.operator, state.operator_name) for state in job.states()} == {
        ("keeper", "keep all")
    }


def test_an_aggregating_state_gives_results_to_who_has_its_function() -> None:
    job = kept(keeping(*STORY), view={"functions": {"mean": Mean()}})
    assert job.newest().get("mean", "a") == 3.0 and job.newest().get_many("mean", ["a", "x"]) == [3.0, None]


def test_states_that_were_not_declared_need_permission() -> None:
    store = new_store()
    run(keeping(*STORY), store=store)
    with pytest.raises(query.UnknownStateError, match="only with allow_undeclared=True"):
        query.open(f"memory://{store}").newest().get(("keeper", "hidden"), "a")
    view = query.open(f"memory://{store}", allow_undeclared=True).newest()
    assert view.get(("keeper", "hidden"), "a") == view.get(("keep all", "hidden"), "a") == 5
    assert view.get(("keeper", "total"), "a") == 6


def test_scans_are_bounded_and_chosen_by_prefix() -> None:
    view = kept(keeping(("ab", 1), ("ac", 2), ("b", 3))).newest()
    rows = view.scan("total").read_all().to_pylist()
    assert sorted((row["key"], row["value"]) for row in rows) == [("ab", 1), ("ac", 2), ("b", 3)]
    assert view.scan("total", prefix="a").read_all().column("value").to_pylist() in ([1, 2], [2, 1])
    assert view.scan("total", limit=2).read_all().num_rows == 2
    assert view.scan("total", prefix="a", limit=1).read_all().num_rows == 1


def test_keys_without_a_type_are_found_by_value() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        keys = [1, "1", (1, "x"), b"1", None, 2.5]
        env.add_source(Script(keys)).key_by(lambda key: key).as_queryable_state("last")

    view = kept(build).newest()
    assert [view.get("last", key) for key in (1, True, 1.0)] == [1, 1, 1]
    others: list[Any] = ["1", (1, "x"), b"1", None, 2.5]
    assert [view.get("last", key) for key in others] == view.get_many("last", others) == others
    with pytest.raises(query.KeyTypeError, match="a dict, which can change"):
        view.get("last", {"user": 1})


def test_keys_of_a_declared_type_are_checked_never_just_missing() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.add_source(Script([(1, 2)], type_info=Types.TUPLE([Types.INT(), Types.LONG()])))
        stream.key_by(0).as_queryable_state("by-int")
        stream.key_by(lambda pair: pair, Types.TUPLE([Types.INT(), Types.LONG()])).as_queryable_state("by-pair")

    view = kept(build).newest()
    assert view.get("by-int", 1) == (1, 2) and view.get("by-int", 7) is None
    assert view.get("by-pair", (1, 2)) == (1, 2)
    assert view.get_columns("by-int", pa.array([1, 3])).column("found").to_pylist() == [True, False]
    for wrong in ("1", 2**40, b"1"):
        with pytest.raises(query.KeyTypeError, match="'by-int' has keys of INT"):
            view.get("by-int", wrong)
    with pytest.raises(query.KeyTypeError, match="'by-int' has keys of INT"):
        view.get_columns("by-int", pa.array(["x"]))


def test_what_has_expired_at_the_epochs_time_is_gone() -> None:
    class Short(KeyedProcessFunction):
        def open(self, runtime_context: Any) -> None:
            descriptor = queryable(ValueStateDescriptor("short", Types.LONG()))
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(1_000)).build())
            self.short = runtime_context.get_state(descriptor)

        def process_element(self, value: tuple[str, int], ctx: Any) -> None:
            self.short.update(value[1])

    clock = ManualClock(1_000_000)
    items = [("a", 1), EPOCH, Pause(600), ("b", 2), EPOCH, Pause(600), ("c", 3)]
    script = Script(items, type_info=PAIR, clock=clock)
    job = kept(lambda env: env.add_source(script).key_by(0).process(Short()).sink_to(Collect()), clock=clock)
    told = [(epoch, [view.get("short", key) for key in "abc"]) for epoch in (1, 2, 3) for view in [job.at(epoch=epoch)]]
    assert told == [(1, [1, None, None]), (2, [1, 2, None]), (3, [None, 2, 3])]


# --- ends of streams --------------------------------------------------------------------------------------------


def test_a_stream_may_end_in_a_queryable_state_of_last_or_reduced_records() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        keyed = env.add_source(Script([("a", 1), EPOCH, ("a", 5), ("b", 2)], type_info=PAIR)).key_by(0)
        ended = keyed.as_queryable_state("last").uid("keeps-last")
        assert ended.get_queryable_state_name() == "last"
        add = ReducingStateDescriptor("sums", lambda one, other: (one[0], one[1] + other[1]), PAIR)
        keyed.as_queryable_state("sum", add)

    job = kept(build)
    assert job.newest().watermark is not None  # that of the ends, though no sink is among them
    assert job.newest().get_many("last", ["a", "b"]) == [("a", 5), ("b", 2)]
    assert job.newest().get_many("sum", ["a", "b"]) == [("a", 6), ("b", 2)]
    assert [value for _, _, value in job.series("sum", "a")][:2] == [("a", 1), ("a", 6)]


def test_the_plan_says_what_can_be_asked_for() -> None:
    env = StreamExecutionEnvironment()
    env.add_source(Script([("a", 1)], type_info=PAIR)).key_by(0).as_queryable_state("last")
    assert "queryable as 'last'" in env.explain()


def test_two_states_of_one_name_are_refused_at_the_users_line() -> None:
    env = StreamExecutionEnvironment()
    stream = env.add_source(Script([("a", 1)], type_info=PAIR)).key_by(0)
    stream.as_queryable_state("last")
    stream.as_queryable_state("last").uid("other")
    with pytest.raises(ProgramError, match=r"'last' is the queryable name of both .*test_query.py:\d+\)$"):
        run(env)

    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.add_source(Script([("a", 1)], type_info=PAIR)).key_by(0)
        stream.process(Keeps()).uid("one").sink_to(Collect())
        stream.process(Keeps()).uid("two").sink_to(Collect())

    with pytest.raises((ProgramError, JobFailedError), match="is the name of queryable states of both"):
        run(build)


def test_what_cannot_be_declared_is_refused_where_it_is_written() -> None:
    keyed = StreamExecutionEnvironment().add_source(Script([("a", 1)], type_info=PAIR)).key_by(0)
    descriptor = ValueStateDescriptor("total", Types.LONG())
    descriptor.set_queryable("totals")
    with Refused("is already queryable as 'totals'"):
        descriptor.set_queryable("others")
    with Refused("expected a non-empty string"):
        descriptor.set_queryable("")
    with Refused("expected a ValueStateDescriptor or a ReducingStateDescriptor"):
        keyed.as_queryable_state("list", ListStateDescriptor("list", PAIR))  # type: ignore[arg-type]


# --- epochs -----------------------------------------------------------------------------------------------------


def test_all_answers_of_a_view_belong_to_its_epoch_while_the_job_goes_on() -> None:
    store = new_store()
    run(keeping(*STORY), store=store, epochs=1)
    job = query.open(f"memory://{store}")
    before = job.newest()
    assert before.get_many("total", ["a", "b"]) == [1, 2]
    run(keeping(*STORY), store=store, parallelism=3)
    time.sleep(0.03)
    assert job.newest().epoch > before.epoch and job.newest().get_many("total", ["a", "b"]) == [6, None]
    assert before.get_many("total", ["a", "b"]) == [1, 2] and before.get("seen", "a") == [1]


@pytest.mark.parametrize("by_time", [False, True])
def test_the_newest_epoch_is_not_older_than_one_that_was_asked_for_before(by_time: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr("millstream.query.job_view.POLL_MS", 3_600_000)  # it does not look for a newer one by itself
    store = new_store()
    run(keeping(*STORY), store=store, epochs=1)
    job = query.open(f"memory://{store}")
    first = job.newest().epoch
    run(keeping(*STORY), store=store)
    with job.at(time=dt.datetime.now(dt.UTC)) if by_time else job.at(epoch=first + 1) as view:
        assert view.epoch > first and job.newest().epoch >= view.epoch


def test_a_view_stays_readable_when_its_epoch_is_collected() -> None:
    clock, store = ManualClock(1_000), new_store()
    run(keeping(*STORY), store=store, clock=clock, epochs=1)
    job = query.open(f"memory://{store}", follow=False)
    view = job.newest()
    run(keeping(*STORY), store=store, clock=clock)
    place = open_store(f"memory://{store}")
    newest = ManifestLog(place).newest()
    assert newest is not None
    Sweeper(place, clock.now_ms, RetentionPolicy(keep_last=1)).sweep(newest)
    assert view.get("total", "b") == 2 and job.newest() is view
    with pytest.raises(query.EpochGoneError, match=r"no longer retains epoch 1; it has \d+"):
        job.at(epoch=1)
    with pytest.raises(query.NoEpochError, match="has no epoch 99 yet"):
        job.at(epoch=99)
    with pytest.raises(query.EpochGoneError, match="committed at or before 1"):
        job.at(time=1)


def test_an_older_epoch_is_held_until_its_view_is_closed() -> None:
    job = kept(keeping(*STORY))
    with job.at(epoch=2) as view:
        assert [lease.epoch for lease in leases_of(job.store)] == [2] and view.get("total", "b") == 2
    assert leases_of(job.store) == []
    assert job.at(time=dt.datetime.now(dt.UTC)).epoch == job.newest().epoch


def test_a_series_has_one_answer_for_every_retained_epoch() -> None:
    job = kept(keeping(*STORY), clock=ManualClock(7_000))
    told = job.series("total", "b")
    assert told[:3] == [(1, 7_000, 2), (2, 7_000, 2), (3, 7_000, None)]
    assert [epoch for epoch, _, _ in told] == job.epochs()
    with pytest.raises(query.UnknownStateError, match="Did you mean 'total'"):
        job.series("totl", "b")


def test_a_fork_is_asked_for_what_it_shares_and_for_its_own() -> None:
    base, fork = new_store(), new_store()
    run(keeping(*STORY), store=base, epochs=2)

    def build(env: StreamExecutionEnvironment) -> None:
        env.configure(Configuration().set_string("execution.savepoint.path", f"memory://{base}@2"))
        keeping(*STORY, ("a", 100))(env)

    job = kept(build, fork, parallelism=2)
    assert job.newest().get_many("total", ["a", "b", "c"]) == [106, None, 7]
    assert query.open(f"memory://{base}").newest().get("total", "a") == 6


@pytest.mark.slow
def test_epochs_are_followed_and_waited_for_and_answers_never_go_backwards() -> None:
    store, rounds = new_store(), 12
    items = [item for n in range(rounds) for item in (("a", 1), ("b", 1), EPOCH, *((CRASH,) if n % 6 == 3 else ()))]
    run(keeping(*items), store=store, epochs=1)
    job = query.open(f"memory://{store}")
    seen: list[list[tuple[int, Any, Any]]] = [[], [], []]
    done = threading.Event()

    def watch(own: list[tuple[int, Any, Any]]) -> None:
        while not done.is_set():
            view = job.newest()
            own.append((view.epoch, *view.get_many("total", ["a", "b"])))
            time.sleep(0.001)

    followed: list[int] = []
    threads = [threading.Thread(target=watch, args=(own,)) for own in seen]
    threads.append(threading.Thread(target=lambda: followed.extend(view.epoch for view in job.follow())))
    for thread in threads:
        thread.start()
    run(keeping(*items), store=store, parallelism=2)
    last = job.wait_for(rounds + 1, 60)  # the stop in between was an epoch too
    done.set()
    for thread in threads:
        thread.join()
    for own in seen:
        assert own == sorted(own) and all(a == b for _, a, b in own)
    assert followed == sorted(set(followed)) and last.get("total", "a") == rounds
    with pytest.raises(query.NoEpochError, match=r"has not committed epoch 999 within 0.05 s: it has epoch \d+"):
        job.wait_for(999, 0.05)


# --- wrong questions --------------------------------------------------------------------------------------------


def test_unknown_names_are_answered_with_what_exists() -> None:
    view = kept(keeping(*STORY)).newest()
    with pytest.raises(
        query.UnknownStateError, match=r"'totals'. Did you mean 'total'\? It has: 'anything', 'largest'"
    ):
        view.get("totals", "a")
    with pytest.raises(query.StateKindError, match="'total' is a value state and has no windows"):
        view.windows("total", "a")
    plain = kept(lambda env: env.add_source(Script([1])).sink_to(Collect())).newest()
    with pytest.raises(query.UnknownStateError, match="makes a state queryable by set_queryable"):
        plain.get("total", "a")


@pytest.mark.parametrize(
    ("at", "how"), [("7", r"at\(epoch=7\)"), ("v1", r"at\(epoch=…\)"), ("nonsense", r"at\(epoch=…\)")]
)
def test_a_name_of_a_snapshot_is_refused_and_not_answered_from_the_newest_epoch(at: str, how: str) -> None:
    store = new_store()
    run(keeping(*STORY), store=store, job_name="clicks")
    with pytest.raises(query.UnknownJobError, match=f"names a snapshot.*query the snapshot by {how}"):
        query.open(f"memory://{store}@{at}")


def test_a_store_without_a_job_and_a_job_without_an_epoch_say_so(tmp_path: Any) -> None:
    with pytest.raises(query.UnknownJobError, match="holds no job"):
        query.open(f"memory://{new_store()}")
    with pytest.raises(query.UnknownJobError, match="holds no job; it holds: none"):
        query.open(str(tmp_path))
    store = new_store()
    run(keeping(*STORY), store=store, job_name="clicks")
    with pytest.raises(query.UnknownJobError, match="holds the job 'clicks', not 'orders'"):
        query.open(f"memory://{store}", "orders")
    place = open_store(f"memory://{store}")
    for name in place.list("manifests"):
        place.delete(name)
    with pytest.raises(query.NoEpochError, match="the job has committed nothing"):
        query.open(f"memory://{store}").newest()


def test_a_damaged_newest_manifest_is_told_and_not_passed_over() -> None:
    store = new_store()
    run(keeping(*STORY), store=store)
    place = open_store(f"memory://{store}")
    place.put(place.list("manifests")[-1], b"{")
    with pytest.raises(StoreError, match="is damaged"):
        query.open(f"memory://{store}").newest()


def test_the_age_of_an_answer_is_never_negative() -> None:
    view = kept(keeping(*STORY), clock=ManualClock(5_000)).newest()
    assert (view.committed_ms, view.age_ms(7_500), view.age_ms(1)) == (5_000, 2_500, 0)


def test_a_state_whose_type_has_changed_is_asked_for_as_it_is_now() -> None:
    class Numbers(KeyedProcessFunction):
        def __init__(self, type_info: Any) -> None:
            self.type_info = type_info

        def open(self, runtime_context: Any) -> None:
            self.last = runtime_context.get_state(queryable(ValueStateDescriptor("last", self.type_info)))

        def process_element(self, value: tuple[str, int], ctx: Any) -> None:
            self.last.update(value[1])

    def program(type_info: Any) -> Any:
        script = Script([("a", 1), EPOCH, ("b", 2**40 if type_info == Types.LONG() else 2)], type_info=PAIR)
        return lambda env: env.add_source(script).key_by(0).process(Numbers(type_info)).uid("n").sink_to(Collect())

    store = new_store()
    run(program(Types.INT()), store=store, epochs=1)
    job = query.open(f"memory://{store}")
    assert job.newest().get("last", "a") == 1
    run(program(Types.LONG()), store=store)
    view = query.open(f"memory://{store}").newest()
    assert [view.get("last", key) for key in "ab"] == view.get_many("last", list("ab")) == [1, 2**40]
    assert [value for _, _, value in job.series("last", "a")] == [1] * len(job.epochs())


def test_running_sums_can_be_asked_for_where_that_is_allowed() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        script = Script([("a", 1), ("a", 4), ("b", 2)], type_info=PAIR)
        env.add_source(script).key_by(0).sum(1).uid("sums").sink_to(Collect())

    view = kept(build, view={"allow_undeclared": True}).newest()
    [state] = view.states()
    assert (state.name, state.operator, state.kind, state.key_type) == (None, "sums", "value", "STRING")
    assert not state.is_pickled
    assert view.get((state.operator, state.state), "a") == ("a", 5)


# --- where files lie ----------------------------------------------------------------------------------------------


def copied(store: str, place: Any) -> str:
    """The store's files in a folder."""
    source, target = open_store(f"memory://{store}"), open_store(str(place), fsync=False)
    for name in source.list(""):
        target.put(name, source.get(name))
    return str(place)


def test_a_local_store_is_read_in_place_and_found_by_the_jobs_name(tmp_path: Any) -> None:
    for name in ("clicks", "orders"):
        store = new_store()
        run(keeping(*STORY), store=store, job_name=name)
        copied(store, tmp_path / name)
    job = query.open(str(tmp_path), "orders")
    view = job.newest()
    assert job.job == "orders" and view.get_many("total", ["a", "b"]) == [6, None]
    segments = [file for file in (tmp_path / "orders").rglob("*") if file.is_file() and "segments" in file.parts]
    assert segments
    for file in segments:
        file.unlink()  # what is open stays readable, whatever the job collects
    assert view.get("seen", "a") == [1, 5] and view.get("names", "a") == {1: "1", 5: "5"}
    with pytest.raises(query.UnknownJobError, match=r"holds several jobs; it holds: '(clicks|orders)' \("):
        query.open(str(tmp_path))
    with pytest.raises(query.UnknownJobError, match="holds no job 'visits'"):
        query.open(str(tmp_path), "visits")


def test_files_of_a_remote_store_are_kept_in_a_folder(tmp_path: Any) -> None:
    store = new_store()
    run(keeping(*STORY), store=store)
    job = query.open(f"memory://{store}", cache_folder=tmp_path / "cache")
    assert job.newest().get("total", "a") == 6 and list((tmp_path / "cache").iterdir())


def test_state_that_belongs_to_no_key_cannot_be_queryable() -> None:
    stream = StreamExecutionEnvironment().add_source(Script([("a", 1)], type_info=PAIR))
    rules = queryable(MapStateDescriptor("rules", Types.STRING(), Types.LONG()))
    with Refused("state 'rules' is queryable, and only keyed state can be"):
        stream.broadcast(rules)
