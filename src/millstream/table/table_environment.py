"""`TableEnvironment` and `StreamTableEnvironment`: the entry points of programs with tables.

An environment has a planner session (catalogs, settings) and a StreamExecutionEnvironment, which runs its queries as
jobs. Importing this module does not import PySpark; starting a job does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.common.configuration import Configuration
from millstream.common.typeinfo import TypeInformation
from millstream.common.types import Row, RowKind
from millstream.datastream.environment.program_settings import ProgramSettings
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.datastream.streams.argument_checks import at_users_line
from millstream.datastream.streams.stream import DataStream
from millstream.errors import LATER, NotYetError
from millstream.expressions.nested_types import RowType
from millstream.graph.error_report import show_uncaught_errors
from millstream.graph.nodes import Edge
from millstream.graph.site import refuse, refuse_type
from millstream.planner import table_operations as operations
from millstream.planner.catalog import Catalog as StoredCatalog
from millstream.planner.catalog import CatalogStore, Database
from millstream.planner.entries import ColumnEntry, TableEntry, ViewEntry, WatermarkEntry
from millstream.planner.lowering.endpoints import SourceOrigin, StreamTarget
from millstream.planner.relations import Relation
from millstream.planner.session import PlannerSession
from millstream.pyflink_names import add_pyflink_names
from millstream.records.batch import Batch
from millstream.records.table_type import TableRowType
from millstream.sql.parser import parse_query, parse_statement
from millstream.table.changelog_mode import ChangelogMode
from millstream.table.compiled_plan import CompiledPlan
from millstream.table.conversions.changelog_streams import changelog_sink
from millstream.table.conversions.column_source import ColumnSource
from millstream.table.conversions.elements import elements_type, frame_type, rows_of, stored_type
from millstream.table.conversions.stream_tables import stream_relation
from millstream.table.environment_settings import EnvironmentSettings
from millstream.table.environments.catalog_methods import CatalogMethods
from millstream.table.environments.known_settings import check_settings
from millstream.table.environments.plan_statements import loaded_plan
from millstream.table.environments.settings_mapping import SettingsMapping
from millstream.table.environments.statement_runner import StatementRunner
from millstream.table.explain_detail import ExplainDetail
from millstream.table.operations.query_runner import QueryRunner
from millstream.table.operations.table_outputs import details_of
from millstream.table.statement_set import StatementSet
from millstream.table.table import Table
from millstream.table.table_config import TableConfig
from millstream.table.table_descriptor import TableDescriptor
from millstream.table.table_result import TableResult

if TYPE_CHECKING:
    import pandas as pd

    from millstream.table.plan_reference import PlanReference
    from millstream.table.schema import Schema

__all__ = ["StreamTableEnvironment", "TableEnvironment"]

_MODE = "execution.runtime-mode"


class TableEnvironment(CatalogMethods):
    """The entry point of a program with tables.

    >>> t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    >>> t_env.from_elements([(1, "a")], ["id", "name"]).get_schema().get_field_names()
    ['id', 'name']
    """

    def __init__(self, j_tenv: Any = None, serializer: Any = None) -> None:
        show_uncaught_errors()
        settings, environment = j_tenv if isinstance(j_tenv, tuple) else (None, None)
        if j_tenv is not None and not isinstance(j_tenv, tuple):
            raise refuse(f"{type(self).__name__}: found {j_tenv!r}. Make one by {type(self).__name__}.create(...)")
        settings = settings or EnvironmentSettings.in_streaming_mode()
        self._environment = environment or StreamExecutionEnvironment.get_execution_environment()
        configuration = ProgramSettings().add_all(settings.get_configuration())
        check_settings(configuration)
        self._config = TableConfig(configuration=configuration, below=self._environment._configuration)
        self._session = PlannerSession(
            _store(settings),
            settings.get_built_in_catalog_name(),
            settings.get_built_in_database_name(),
            SettingsMapping(configuration, self._environment._configuration),
        )
        self._runner = QueryRunner(self._environment, self._session, configuration)
        self._statements = StatementRunner(self._runner, self._config)
        self._named_tables = 0

    @staticmethod
    def create(environment_settings: EnvironmentSettings | Configuration) -> TableEnvironment:
        """Creates an environment: streaming or batch, by the settings."""
        return TableEnvironment((_settings(environment_settings), None))

    def get_config(self) -> TableConfig:
        """The settings; changes to it affect this environment."""
        return self._config

    def _table(self, relation: Relation) -> Table:
        return Table(relation, self)

    # --- tables -------------------------------------------------------------------------------------------------------

    def from_path(self, path: str) -> Table:
        """The table or view with a path: `[catalog.][database.]name`."""
        with at_users_line():
            return self._table(operations.scan(self._path(path), self._session))

    def from_descriptor(self, descriptor: TableDescriptor) -> Table:
        """The table of a descriptor."""
        with at_users_line():
            return self._table(operations.scan_entry(self._entry_of(descriptor), self._session))

    def from_elements(self, elements: Any, schema: Any = None, verify_schema: bool = True) -> Table:
        """A table of Python values: tuples, Rows, dicts, objects or single values. `schema` is a row type, or names
        with inferred types."""
        if isinstance(elements, str | bytes | Mapping | Row):
            raise refuse_type(f"from_elements: found {elements!r}, expected a list of rows. Write [{elements!r}]")
        values = list(elements)
        declared = elements_type(values, schema)
        return self._of_rows(rows_of(values, declared), stored_type(declared))

    def _of_rows(self, rows: list[Any], row_type: RowType, watermark: WatermarkEntry | None = None) -> Table:
        """A table of rows of a type, optionally with a watermark."""
        with at_users_line():
            type_info = TableRowType(row_type)
            columns = Batch.of_values(rows, type_info).columns()
            if columns.num_columns > len(row_type.fields):
                raise NotYetError.of("from_elements of rows that change", LATER, "rows of kind INSERT")
            return self._of_columns(pa.Table.from_batches([columns]), row_type, watermark)

    def _of_columns(self, columns: pa.Table, row_type: RowType, watermark: WatermarkEntry | None = None) -> Table:
        """A table of Arrow columns with the row type, optionally with a watermark."""
        return self._of_source(ColumnSource(columns, TableRowType(row_type)), row_type, watermark)

    def from_pandas(self, pdf: pd.DataFrame, schema: Any = None, splits_num: int = 1) -> Table:
        """A table of a pandas DataFrame. `schema` is a row type, names, or types; otherwise types are inferred."""
        if not hasattr(pdf, "itertuples"):
            raise refuse_type(f"from_pandas: found {pdf!r} ({type(pdf).__name__}), expected a pandas DataFrame")
        if not pdf.columns.is_unique:
            twice = [str(name) for name in pdf.columns[pdf.columns.duplicated()]]
            raise refuse(f"from_pandas: the DataFrame has columns of one name: {', '.join(twice)}. Rename them")
        columns = pa.Table.from_pandas(pdf, preserve_index=False)
        row_type = frame_type(columns, schema)
        try:
            typed = columns.rename_columns(list(row_type.names)).cast(row_type.schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise refuse(f"from_pandas: the values do not fit the types: {error}") from error
        with at_users_line():
            return self._of_columns(typed, row_type)

    def _of_source(self, source: Any, row_type: RowType, watermark: WatermarkEntry | None = None) -> Table:
        columns = tuple(ColumnEntry(field.name, field.data_type) for field in row_type.fields)
        with at_users_line():
            entry = TableEntry(columns, watermark, origin=SourceOrigin(source))
            return self._table(operations.scan_entry(entry, self._session))

    def _name_table(self, table: Table) -> str:
        """Names a table used in a statement's text, as Flink does."""
        self._named_tables += 1
        name = f"UnnamedTable${self._named_tables - 1}"
        self._create_view(name, table._relation, True, False)
        return name

    def create_temporary_view(self, view_path: str, table_or_data_stream: Any, *fields_or_schema: Any) -> None:
        """Names a table or a stream, for the lifetime of the environment."""
        relation = self._relation_of("create_temporary_view", table_or_data_stream, fields_or_schema)
        self._create_view(view_path, relation, True, False)

    def create_view(self, view_path: str, table: Table, ignore_if_exists: bool = False) -> None:
        """Names a table in a catalog."""
        self._create_view(view_path, self._relation_of("create_view", table, ()), False, ignore_if_exists)

    def _relation_of(self, method: str, table: Any, fields: tuple[Any, ...]) -> Relation:
        if isinstance(table, Table) and not fields:
            return table._relation
        raise refuse_type(
            f"{method}: found {table!r}, expected a table; a StreamTableEnvironment takes a DataStream too. A query in "
            "SQL becomes a table by sql_query(...)"
        )

    def _create_view(self, path: str, relation: Relation, temporary: bool, if_not_exists: bool) -> None:
        full_path = self._session.path_of(self._path(path))
        store = self._session.store
        if if_not_exists and store.permanent_table(full_path) is not None:
            return
        with at_users_line():
            store.add_table(full_path, ViewEntry(relation=relation, names=relation.schema.names), temporary)

    # --- SQL ----------------------------------------------------------------------------------------------------------

    def sql_query(self, query: str) -> Table:
        """The table of a SQL query."""
        with at_users_line():
            return self._table(operations.query(parse_query(_text("sql_query", query)), self._session))

    def execute_sql(self, stmt: str) -> TableResult:
        """Executes one statement: a definition at once, a query or an INSERT as a job concurrent with the program."""
        with at_users_line():
            return TableResult(self._statements.execute(parse_statement(_text("execute_sql", stmt))))

    def explain_sql(self, stmt: str, *extra_details: ExplainDetail) -> str:
        """The statement's syntax tree and its plan."""
        with at_users_line():
            statement = parse_statement(_text("explain_sql", stmt))
            return self._statements.explained(statement, details_of(extra_details))

    def create_statement_set(self) -> StatementSet:
        """A set of INSERTs that run as one job."""
        return StatementSet(None, self)

    # --- dependencies of tasks, and stored plans ----------------------------------------------------------------------

    def add_python_file(self, file_path: str) -> None:
        """Adds a file, package or folder for functions to import."""
        self._environment.add_python_file(file_path)

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """Adds packages for functions to import."""
        self._environment.set_python_requirements(requirements_file_path, requirements_cache_dir)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Adds an archive that is unpacked for functions."""
        self._environment.add_python_archive(archive_path, target_dir)

    def load_plan(self, plan_reference: PlanReference) -> CompiledPlan:
        """Loads a stored plan."""
        with at_users_line():
            text, where = plan_reference._read()
            return CompiledPlan(loaded_plan(text, where, self._session), self)

    def compile_plan_sql(self, stmt: str) -> CompiledPlan:
        """Compiles a statement to a plan that can be stored."""
        with at_users_line():
            statement = parse_statement(_text("compile_plan_sql", stmt))
            return CompiledPlan(self._statements.compiled(statement), self)

    def execute_plan(self, plan_reference: PlanReference) -> TableResult:
        """Runs a stored plan."""
        return self.load_plan(plan_reference).execute()


class StreamTableEnvironment(TableEnvironment):
    """A table environment over a program's streams, with conversions in both directions."""

    def __init__(self, j_tenv: Any = None) -> None:
        super().__init__(j_tenv)

    @staticmethod
    def create(  # type: ignore[override]
        stream_execution_environment: StreamExecutionEnvironment | None = None,
        environment_settings: EnvironmentSettings | None = None,
    ) -> StreamTableEnvironment:
        """Creates a table environment over the streams of an environment."""
        environment = stream_execution_environment
        if environment is not None and not isinstance(environment, StreamExecutionEnvironment):
            raise refuse_type(f"create: found {environment!r}, expected a StreamExecutionEnvironment")
        if environment_settings is None:
            mode = None if environment is None else environment._configuration.get_string(_MODE, None)
            is_batch = mode is not None and mode.upper() == "BATCH"
            environment_settings = (
                EnvironmentSettings.in_batch_mode() if is_batch else EnvironmentSettings.in_streaming_mode()
            )
        return StreamTableEnvironment((_settings(environment_settings), environment))

    def from_data_stream(self, data_stream: DataStream, *fields_or_schema: Any) -> Table:
        """Converts a stream's records to rows by a Schema, by fields, or by the stream's type."""
        return self._table(self._relation_of("from_data_stream", data_stream, fields_or_schema))

    def from_changelog_stream(
        self, data_stream: DataStream, schema: Schema | None = None, changelog_mode: ChangelogMode | None = None
    ) -> Table:
        """Converts a stream of changes to a table; each Row's kind determines the change."""
        mode = changelog_mode or ChangelogMode.all()
        if not isinstance(data_stream, DataStream):
            raise refuse_type(f"from_changelog_stream: found {data_stream!r}, expected a stream")
        fields = () if schema is None else (schema,)
        return self._table(self._relation_of("from_changelog_stream", data_stream, fields, mode._kinds))

    def to_data_stream(self, table: Table) -> DataStream:
        """The rows of an append-only table as a stream of Rows, with the table's event time."""
        return self._stream("to_data_stream", table)

    def to_changelog_stream(
        self, table: Table, target_schema: Schema | None = None, changelog_mode: ChangelogMode | None = None
    ) -> DataStream:
        """The changes of a table as a stream of Rows with row kinds. `target_schema`: their columns. `changelog_mode`:
        insert_only() rejects an updating table; upsert() omits update-before rows, and needs a schema with a primary
        key."""
        mode = changelog_mode or ChangelogMode.all()
        if not isinstance(table, Table):
            raise refuse_type(f"to_changelog_stream: found {table!r}, expected a table")
        with at_users_line():
            [node] = self._runner.attach([changelog_sink(table._relation, target_schema, mode, self._session)])
        return DataStream(environment=self._environment, edges=(Edge(node.id),))

    def to_append_stream(self, table: Table, type_info: TypeInformation) -> DataStream:
        """The rows of an append-only table as a stream of a type."""
        from millstream.table.conversions.typed_streams import typed_stream

        return typed_stream(self._stream("to_append_stream", table), type_info, "to_append_stream")

    def to_retract_stream(self, table: Table, type_info: TypeInformation) -> DataStream:
        """The changes of a table as pairs of an insert flag and the row."""
        from millstream.table.conversions.typed_streams import flagged_stream

        return flagged_stream(self._stream("to_retract_stream", table, changes=True), type_info)

    def _stream(self, method: str, table: Any, *, changes: bool = False) -> DataStream:
        if not isinstance(table, Table):
            raise refuse_type(f"{method}: found {table!r}, expected a table")
        with at_users_line():
            sink = operations.collect(table._relation, StreamTarget(changes=changes))
            [node] = self._runner.attach([sink])
        return DataStream(environment=self._environment, edges=(Edge(node.id),))

    def _relation_of(
        self,
        method: str,
        table: Any,
        fields: tuple[Any, ...],
        changes: frozenset[RowKind] = frozenset({RowKind.INSERT}),
    ) -> Relation:
        if not isinstance(table, DataStream):
            return super()._relation_of(method, table, fields)
        if table._environment is not self._environment:
            raise refuse("the stream belongs to another environment: pass that one to create(env)")
        with at_users_line():
            return stream_relation(table, fields, self._session, changes)


def _settings(settings: Any) -> EnvironmentSettings:
    if isinstance(settings, EnvironmentSettings):
        return settings
    if isinstance(settings, Configuration):
        return EnvironmentSettings.new_instance().with_configuration(settings).build()
    raise refuse_type(
        f"create: found {settings!r}, expected EnvironmentSettings.in_streaming_mode() or in_batch_mode()"
    )


def _store(settings: EnvironmentSettings) -> CatalogStore:
    """A catalog store with the initial catalog."""
    database = settings.get_built_in_database_name()
    store = CatalogStore()
    store.catalogs = {settings.get_built_in_catalog_name(): StoredCatalog({database: Database()}, database)}
    return store


def _text(method: str, text: Any) -> str:
    if not isinstance(text, str) or not text.strip():
        raise refuse_type(f"{method}: found {text!r}, expected a SQL statement as text")
    return text


add_pyflink_names(globals())
