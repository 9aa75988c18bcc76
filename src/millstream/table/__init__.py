"""The Table API and SQL: the public module, with PyFlink's names.

Importing it loads neither PySpark nor Java. Programs build tables with method calls or SQL statements; `execute` and
similar methods run them as jobs.
"""

from __future__ import annotations

from millstream.pyflink_names import add_pyflink_names
from millstream.table.changelog_mode import ChangelogMode
from millstream.table.compiled_plan import CompiledPlan
from millstream.table.data_view import DataView, ListView, MapView
from millstream.table.environment_settings import EnvironmentSettings
from millstream.table.explain_detail import ExplainDetail
from millstream.table.expression import Expression
from millstream.table.module import Module, ModuleEntry
from millstream.table.plan_reference import PlanReference
from millstream.table.result_kind import ResultKind
from millstream.table.schema import Schema
from millstream.table.sql_dialect import SqlDialect
from millstream.table.statement_set import StatementSet
from millstream.table.table import (
    GroupedTable,
    GroupWindowedTable,
    OverWindowedTable,
    Table,
    WindowGroupedTable,
)
from millstream.table.table_config import TableConfig
from millstream.table.table_descriptor import FormatDescriptor, TableDescriptor
from millstream.table.table_environment import StreamTableEnvironment, TableEnvironment
from millstream.table.table_pipeline import TablePipeline
from millstream.table.table_result import TableResult
from millstream.table.table_schema import TableSchema
from millstream.table.types import DataTypes, Row, RowKind, UserDefinedType
from millstream.table.udf import (
    AggregateFunction,
    AsyncScalarFunction,
    FunctionContext,
    ScalarFunction,
    TableAggregateFunction,
    TableFunction,
)

__all__ = [
    "AggregateFunction",
    "AsyncScalarFunction",
    "ChangelogMode",
    "CompiledPlan",
    "DataTypes",
    "DataView",
    "EnvironmentSettings",
    "ExplainDetail",
    "Expression",
    "FormatDescriptor",
    "FunctionContext",
    "GroupWindowedTable",
    "GroupedTable",
    "ListView",
    "MapView",
    "Module",
    "ModuleEntry",
    "OverWindowedTable",
    "PlanReference",
    "ResultKind",
    "Row",
    "RowKind",
    "ScalarFunction",
    "Schema",
    "SqlDialect",
    "StatementSet",
    "StreamTableEnvironment",
    "Table",
    "TableAggregateFunction",
    "TableConfig",
    "TableDescriptor",
    "TableEnvironment",
    "TableFunction",
    "TablePipeline",
    "TableResult",
    "TableSchema",
    "UserDefinedType",
    "WindowGroupedTable",
]

add_pyflink_names(globals())
