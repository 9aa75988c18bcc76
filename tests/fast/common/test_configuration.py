"""Settings: a bag of text, typed readers, and a table of known keys that catches typos."""

from __future__ import annotations

import copy
import difflib

import pytest

from millstream.common import ConfigOptions, Configuration, ExecutionConfig, RestartStrategies, options
from millstream.common.options import EPOCH_POLL_INTERVAL, KNOWN, check_key, read
from millstream.common.options.option import Option, OptionType
from millstream.common.options.quantities import parse_bytes, parse_duration_ms
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ConfigurationError, NotAvailableError


def test_every_kind_of_value_comes_back_as_it_was_set() -> None:
    bag = Configuration()
    bag.set_string("s", "text").set_integer("i", -3).set_boolean("b", True).set_float("f", 0.1)
    bag.set_bytearray("y", bytearray(b"\x00\xff"))
    assert bag.get_string("s", None) == "text"
    assert bag.get_integer("i", 0) == -3
    assert bag.get_boolean("b", False) is True
    assert bag.get_float("f", 0.0) == 0.1
    assert bag.get_bytearray("y", None) == bytearray(b"\x00\xff")
    assert bag.get_string("i", None) == "-3"
    assert bag.to_dict()["b"] == "true"


def test_missing_settings_give_the_default() -> None:
    bag = Configuration()
    assert bag.get_string("k", "d") == "d"
    assert (bag.get_integer("k", 1), bag.get_boolean("k", True), bag.get_float("k", 2.0)) == (1, True, 2.0)
    assert bag.get_bytearray("k", None) is None


def test_a_setting_of_another_kind_names_key_text_and_expectation() -> None:
    bag = Configuration.from_dict({"i": "four", "b": "yes", "f": "x", "y": "?"})
    with pytest.raises(ConfigurationError, match="i is set to 'four', expected a whole number"):
        bag.get_integer("i", 0)
    with pytest.raises(ConfigurationError, match="true or false"):
        bag.get_boolean("b", False)
    with pytest.raises(ConfigurationError, match="a number"):
        bag.get_float("f", 0)
    with pytest.raises(ConfigurationError, match="base64"):
        bag.get_bytearray("y", None)
    with pytest.raises(ConfigurationError, match="set_integer"):
        bag.set_string("k", 4)  # type: ignore[arg-type]


def test_bags_are_copied_compared_and_joined() -> None:
    first = Configuration.from_dict({"a": 1, "b": True})
    second = Configuration(first)
    second.set_string("c", "x")
    assert first.key_set() == {"a", "b"}
    assert copy.deepcopy(first) == first != second
    first.add_all(second, prefix="p.")
    assert first.to_dict() == {"a": "1", "b": "true", "p.a": "1", "p.b": "true", "p.c": "x"}
    assert first.remove_config("a") and not first.remove_config("a")
    assert first.contains_key("b") and not first.contains_key("a")
    target: dict[str, object] = {}
    second.add_all_to_dict(target)
    assert target == {"a": 1, "b": True, "c": "x"}  # as they were given, as in PyFlink
    first.add_all_to_dict(target)
    assert target["p.a"] == 1
    with pytest.raises(NotAvailableError):
        Configuration(j_configuration=object())


def test_texts_are_flinks() -> None:
    bag = Configuration().set_string("k1", "v1").set_integer("k2", 1).set_float("k3", 1e10)
    assert str(bag) == "{k1=v1, k2=1, k3=1.0E10}"
    assert bag.get_float("k3", 0) == 1e10
    lists = Configuration.from_dict({"jars": ["a.jar", "b;c", "it's"], "map": {"a": 1.5}, "none": []})
    assert lists.to_dict() == {"jars": "[a.jar, 'b;c', 'it''s']", "map": "{a: 1.5}", "none": "[]"}
    assert Configuration.parse_list_value(lists.get_string("jars", None)) == ["a.jar", "b;c", "it's"]


@pytest.mark.parametrize(
    ("text", "items"),
    [
        (None, []),
        ("", []),
        ("jar1;jar2;jar3", ["jar1", "jar2", "jar3"]),
        ("'a;b'; c", ["a;b", "c"]),
        ("[jar1, jar2, jar3]", ["jar1", "jar2", "jar3"]),
        ("""['a, b', "c"]""", ["a, b", "c"]),
        ("- jar1\n- 'jar2'\n- jar3", ["jar1", "jar2", "jar3"]),
        ("[]", []),
    ],
)
def test_lists_are_written_in_flinks_old_way_or_in_yaml(text: str | None, items: list[str]) -> None:
    assert Configuration.parse_list_value(text) == items


def test_typed_options_read_settings() -> None:
    option = ConfigOptions.key("user.retries").int_type().default_value(3)
    assert Configuration().get(option) == 3
    assert Configuration().set_string("user.retries", "5").get(option) == 5
    flag = ConfigOptions.key("user.flag").boolean_type().no_default_value()
    assert Configuration().get(flag) is None
    with pytest.raises(ConfigurationError, match=r"user\.flag"):
        Configuration().set_string("user.flag", "maybe").get(flag)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        *[("10 s", 10_000), ("500ms", 500), ("1 min", 60_000), ("2 h", 7_200_000), ("1 d", 86_400_000)],
        *[("PT0.5S", 500), ("P1DT1H", 90_000_000), ("7", 7), ("1500 us", 1), ("3 seconds", 3_000)],
    ],
)
def test_durations_are_read_in_all_their_forms(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "s", "ten s", "10 parsecs", "P", "PT", "-5 s", "1.5 s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a duration"):
        parse_duration_ms(text)


def test_memory_sizes_are_powers_of_1024() -> None:
    assert [parse_bytes(t) for t in ("1b", "1k", "1 kb", "64mb", "1 g", "2tb")] == [
        1,
        1024,
        1024,
        64 << 20,
        1 << 30,
        2 << 40,
    ]
    with pytest.raises(ConfigurationError, match="is not a memory size"):
        parse_bytes("64 megs")


def test_known_options_are_read_by_their_type_from_bags_and_mappings() -> None:
    size = Option("size", OptionType.MEMORY, 256 << 20, "A size.")
    assert read(size, {}) == 256 << 20
    assert read(size, {"size": "1mb"}) == 1 << 20
    assert read(EPOCH_POLL_INTERVAL, Configuration().set_string(EPOCH_POLL_INTERVAL.key, "1 s")) == 1000
    with pytest.raises(ConfigurationError, match=r"poll-interval is set to 'soon', expected a duration"):
        read(EPOCH_POLL_INTERVAL, {EPOCH_POLL_INTERVAL.key: "soon"})
    with pytest.raises(ConfigurationError, match="expected one of auto, rich, plain, off"):
        read(KNOWN["millstream.console"], {"millstream.console": "loud"})
    assert read(KNOWN["execution.runtime-mode"], {"execution.runtime-mode": "BATCH"}) == "batch"


@pytest.mark.parametrize("option", KNOWN.values(), ids=lambda option: option.key)
def test_every_known_option_is_documented_and_accepts_its_default(option: object) -> None:
    assert option.doc.endswith(".")  # type: ignore[attr-defined]
    assert option.doc.startswith("No effect here") != option.effect  # type: ignore[attr-defined]
    default = option.default  # type: ignore[attr-defined]
    if default is not None:
        assert option.parse(str(default)) in (default, str(default).lower())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "key",
    [
        *[
            "parallelism.default",
            "spark.executor.memory",
            "user.anything",
            "taskmanager.numberOfTaskSlots",
            "rest.port",
        ],
        *["restart-strategy.fixed-delay.attempts", "pipeline.global-job-parameters.input", "millstream.store"],
        *["python.logging.level", "python.requirements", "python.pythonpath", "python.fn-execution.bundle.size"],
        *["execution.checkpointing.data-inline-threshold", "execution.checkpointing.cleaner.parallel-mode"],
        *["execution.state-recovery.from-local", "execution.async-state.buffer-size", "execution.job-listeners"],
        *["execution.checkpointing.unaligned.max-subtasks-per-channel-state-file", "state.storage.fs.memory-threshold"],
        *["pipeline.vertex-description-mode", "pipeline.watermark-alignment.buffer-size", "scheduler-mode"],
        *[
            "client.retry-period",
            "traces.reporters",
            "events.reporters",
            "job-result-store.storage-path",
            "s3.access-key",
        ],
        *[
            "high-availability",
            "cleanup-strategy",
            "cleanup-strategy.fixed-delay.attempts",
            "external-resource.gpu.amount",
            "process.working-dir",
            "jmx.server.port",
        ],
    ],
)
def test_keys_that_mean_something_pass(key: str) -> None:
    check_key(key)


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("paralelism.default", "parallelism.default"),
        ("millstream.epoch.max_records", "millstream.epoch.max-records"),
        ("restart-strategy.fixed-delay.attempt", "restart-strategy.fixed-delay.attempts"),
        ("execution.checkpoint.interval", "execution.checkpointing.interval"),
        ("python.requirement", "python.requirements"),
        ("pipeline.operator-chainin", "pipeline.operator-chaining"),
        ("state.savepoint.dir", "state.savepoints.dir"),
        ("millstream.sum.overflw", "millstream.sum.overflow"),
    ],
)
def test_a_misspelt_key_is_refused_with_the_nearest_and_the_line(typo: str, meant: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        check_key(typo, at="job.py:3")
    assert f"Did you mean {meant!r}?" in str(refusal.value)
    assert str(refusal.value).endswith("(job.py:3)")
    assert difflib.SequenceMatcher(None, typo, meant).ratio() > 0.5


def test_a_key_like_nothing_known_is_refused_without_a_guess() -> None:
    with pytest.raises(ConfigurationError, match=r"'zzz' is unknown\. Keys of your own"):
        check_key("zzz")
    with pytest.raises(ConfigurationError):
        check_key("spark.")


def test_execution_config_writes_through_to_the_configuration() -> None:
    bag = Configuration()
    config = ExecutionConfig(configuration=bag)
    assert config.get_parallelism() == ExecutionConfig.PARALLELISM_DEFAULT
    config.set_parallelism(4).set_max_parallelism(64).set_auto_watermark_interval(50).enable_object_reuse()
    assert bag.to_dict()["parallelism.default"] == "4"
    bag.set_string("parallelism.default", "8")
    assert config.get_parallelism() == 8
    assert (config.get_max_parallelism(), config.get_auto_watermark_interval()) == (64, 50)
    assert config.is_object_reuse_enabled()
    for key in bag.key_set():
        check_key(key)
    config.set_parallelism(-1)
    assert not bag.contains_key("parallelism.default")
    for wrong in (0, -5, 1.5, True):
        with pytest.raises(ConfigurationError, match="from 1 to"):
            config.set_parallelism(wrong)  # type: ignore[arg-type]


def test_every_switch_of_the_execution_config_turns_on_and_off() -> None:
    config = ExecutionConfig()
    config.enable_force_kryo().enable_force_avro().disable_generic_types().disable_auto_generated_uids()
    config.disable_closure_cleaner().set_use_snapshot_compression(True)
    assert config.is_force_kryo_enabled() and config.is_force_avro_enabled()
    assert config.has_generic_types_disabled() and not config.has_auto_generated_uids_enabled()
    assert not config.is_closure_cleaner_enabled() and config.is_use_snapshot_compression()
    config.disable_force_kryo().disable_force_avro().enable_generic_types().enable_auto_generated_uids()
    config.enable_closure_cleaner().disable_object_reuse()
    assert not config.is_force_kryo_enabled() and not config.is_force_avro_enabled()
    assert not config.has_generic_types_disabled() and config.has_auto_generated_uids_enabled()
    assert config.is_closure_cleaner_enabled() and not config.is_object_reuse_enabled()
    config.set_latency_tracking_interval(5).set_task_cancellation_interval(6).set_task_cancellation_timeout(7)
    assert config.get_latency_tracking_interval() == 5
    assert (config.get_task_cancellation_interval(), config.get_task_cancellation_timeout()) == (6, 7)


def test_job_parameters_come_from_the_program_and_the_command_line() -> None:
    bag = Configuration().set_string("pipeline.global-job-parameters", "a:1, url:http://x")
    config = ExecutionConfig(configuration=bag)
    assert config.get_global_job_parameters() == {"a": "1", "url": "http://x"}
    config.set_global_job_parameters({"b,c": "2:3"})
    assert config.get_global_job_parameters() == {"b,c": "2:3"}


def test_restart_strategies_hold_their_numbers_and_refuse_nonsense() -> None:
    fixed = RestartStrategies.fixed_delay_restart(3, 1000)
    assert fixed == RestartStrategies.fixed_delay_restart(3, 1000) != RestartStrategies.no_restart()
    assert fixed.get_restart_attempts() == 3  # type: ignore[attr-defined]
    assert fixed.get_delay_between_attempts_interval().to_millis() == 1000  # type: ignore[attr-defined]
    rate = RestartStrategies.failure_rate_restart(2, 60_000, 10)
    assert rate.get_max_failure_rate() == 2  # type: ignore[attr-defined]
    grow = RestartStrategies.exponential_delay_restart(100, 1000, 2.0, 60_000, 0.1)
    assert "100 ms to 1000 ms" in grow.get_description()
    for wrong in (
        lambda: RestartStrategies.fixed_delay_restart(-1, 0),
        lambda: RestartStrategies.exponential_delay_restart(100, 10, 2.0, 1, 0.1),
        lambda: RestartStrategies.exponential_delay_restart(100, 1000, 0.5, 1, 0.1),
    ):
        with pytest.raises(ConfigurationError):
            wrong()


def test_every_setting_of_ours_is_known_to_the_check_of_keys() -> None:
    for option in (value for value in vars(options).values() if isinstance(value, Option)):
        assert KNOWN[option.key] is option
    check_key("millstream.epoch.max-bytes")


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("execution.buffer-timeout.interval", "70 ms", 70),
        ("execution.buffer-timeout", "60 ms", 60),
        ("execution.buffer-timeout", "-1", -1),
        ("execution.buffer-timeout.enabled", "false", -1),
        ("pipeline.name", "x", 100),
    ],
)
def test_the_buffer_timeout_is_read_under_either_name(key: str, text: str, expected: int) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration().set_string(key, text))
    assert env.get_buffer_timeout() == expected


@pytest.mark.parametrize("key", ["pipeline.operator-chaining.enabled", "pipeline.operator-chaining"])
def test_chaining_is_turned_off_under_either_name_and_the_newer_counts(key: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration().set_string(key, "false"))
    assert not env.is_chaining_enabled()
    env.configure(Configuration().set_string("pipeline.operator-chaining.enabled", "true"))
    assert env.is_chaining_enabled()
