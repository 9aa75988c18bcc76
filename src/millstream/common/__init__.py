"""PyFlink's `common` package: types, rows, time, configuration, schemas. Plain Python, no JVM.

Everything a program imports from `pyflink.common` is importable from here under the same name. Beyond PyFlink there are
the classes that a program needs to define its own event time: `TimestampAssigner`, `WatermarkGenerator`,
`WatermarkOutput`.
"""

from __future__ import annotations

from millstream.common.completable_future import CompletableFuture
from millstream.common.config_options import ConfigOption, ConfigOptions
from millstream.common.configuration import Configuration
from millstream.common.execution_config import ExecutionConfig
from millstream.common.input_dependency_constraint import InputDependencyConstraint
from millstream.common.job_client import JobClient
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_id import JobID
from millstream.common.job_status import JobStatus
from millstream.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from millstream.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    SerializationSchema,
    SimpleStringSchema,
)
from millstream.common.serializer import TypeSerializer
from millstream.common.time import Duration, Instant, Time
from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.types import Row, RowKind
from millstream.common.watermark_strategy import (
    AssignerWithPeriodicWatermarksWrapper,
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from millstream.pyflink_names import add_pyflink_names

__all__ = [
    "AssignerWithPeriodicWatermarksWrapper",
    "ByteArraySchema",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "InputDependencyConstraint",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TimestampAssigner",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]

add_pyflink_names(globals())
