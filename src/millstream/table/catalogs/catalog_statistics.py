"""What a catalog of Flink may know beside tables: partitions, statistics, models. One in memory keeps none of it.

Statistics of Flink serve the order of joins in batch plans. Asking for them gives empty ones, setting them is refused.
"""

from __future__ import annotations

from typing import Any

from millstream.errors import NotAvailableError
from millstream.planner.not_yet import NO_MODELS
from millstream.table.catalogs.objects import (
    CatalogColumnStatistics,
    CatalogModel,
    CatalogPartition,
    CatalogPartitionSpec,
    CatalogTableStatistics,
    ObjectPath,
)

__all__ = ["CatalogStatistics"]

_NO_PARTITIONS = "a catalog in memory keeps no partitions. A filesystem table finds its own: PARTITIONED BY (…)"
_NO_STATISTICS = "plans do not use statistics: leave them out"


class CatalogStatistics:
    """Partitions, statistics and models of a catalog in memory: none."""

    def list_partitions(
        self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec | None = None
    ) -> list[CatalogPartitionSpec]:
        """The partitions that a catalog keeps: none."""
        return []

    def get_partition(self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec) -> CatalogPartition:
        """A partition."""
        raise NotAvailableError(f"Catalog.get_partition is not available: {_NO_PARTITIONS}")

    def partition_exists(self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec) -> bool:
        """Whether a catalog keeps such a partition: none."""
        return False

    def create_partition(
        self,
        table_path: ObjectPath,
        partition_spec: CatalogPartitionSpec,
        partition: CatalogPartition,
        ignore_if_exists: bool,
    ) -> None:
        """A new partition."""
        raise NotAvailableError(f"Catalog.create_partition is not available: {_NO_PARTITIONS}")

    def drop_partition(
        self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec, ignore_if_not_exists: bool
    ) -> None:
        """Forget a partition."""
        raise NotAvailableError(f"Catalog.drop_partition is not available: {_NO_PARTITIONS}")

    def alter_partition(
        self,
        table_path: ObjectPath,
        partition_spec: CatalogPartitionSpec,
        new_partition: CatalogPartition,
        ignore_if_not_exists: bool,
    ) -> None:
        """Give a partition other properties."""
        raise NotAvailableError(f"Catalog.alter_partition is not available: {_NO_PARTITIONS}")

    def list_models(self, database_name: str) -> list[str]:
        """The names of all models: there are none."""
        return []

    def get_model(self, model_path: ObjectPath) -> CatalogModel:
        """A model."""
        raise NotAvailableError(f"Catalog.get_model is not available: {NO_MODELS}")

    def model_exists(self, model_path: ObjectPath) -> bool:
        """Whether there is such a model: there is none."""
        return False

    def drop_model(self, model_path: ObjectPath, ignore_if_not_exists: bool) -> None:
        """Forget a model."""
        raise NotAvailableError(f"Catalog.drop_model is not available: {NO_MODELS}")

    def rename_model(self, model_path: ObjectPath, new_model_name: str, ignore_if_not_exists: bool) -> None:
        """Give a model another name."""
        raise NotAvailableError(f"Catalog.rename_model is not available: {NO_MODELS}")

    def create_model(self, model_path: ObjectPath, model: CatalogModel, ignore_if_exists: bool) -> None:
        """A new model."""
        raise NotAvailableError(f"Catalog.create_model is not available: {NO_MODELS}")

    def alter_model(self, model_path: ObjectPath, new_model: CatalogModel, ignore_if_not_exists: bool) -> None:
        """Put another model in a model's place."""
        raise NotAvailableError(f"Catalog.alter_model is not available: {NO_MODELS}")

    def get_table_statistics(self, table_path: ObjectPath) -> CatalogTableStatistics:
        """How large a table is: not known."""
        return CatalogTableStatistics()

    def get_table_column_statistics(self, table_path: ObjectPath) -> CatalogColumnStatistics:
        """What is known of a table's values: nothing."""
        return CatalogColumnStatistics()

    def get_partition_statistics(
        self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec
    ) -> CatalogTableStatistics:
        """How large a partition is: not known."""
        return CatalogTableStatistics()

    def bulk_get_partition_statistics(
        self, table_path: ObjectPath, partition_specs: list[CatalogPartitionSpec]
    ) -> list[CatalogTableStatistics]:
        """How large partitions are: not known."""
        return [CatalogTableStatistics() for _ in partition_specs]

    def get_partition_column_statistics(
        self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec
    ) -> CatalogColumnStatistics:
        """What is known of a partition's values: nothing."""
        return CatalogColumnStatistics()

    def bulk_get_partition_column_statistics(
        self, table_path: ObjectPath, partition_specs: list[CatalogPartitionSpec]
    ) -> list[CatalogColumnStatistics]:
        """What is known of partitions' values: nothing."""
        return [CatalogColumnStatistics() for _ in partition_specs]

    def alter_table_statistics(self, table_path: ObjectPath, table_statistics: Any, ignore_if_not_exists: bool) -> None:
        """Say what is known."""
        raise NotAvailableError(f"Catalog.alter_table_statistics is not available: {_NO_STATISTICS}")

    def alter_table_column_statistics(
        self, table_path: ObjectPath, column_statistics: Any, ignore_if_not_exists: bool
    ) -> None:
        """Say what is known."""
        raise NotAvailableError(f"Catalog.alter_table_column_statistics is not available: {_NO_STATISTICS}")

    def alter_partition_statistics(
        self,
        table_path: ObjectPath,
        partition_spec: CatalogPartitionSpec,
        partition_statistics: Any,
        ignore_if_not_exists: bool,
    ) -> None:
        """Say what is known."""
        raise NotAvailableError(f"Catalog.alter_partition_statistics is not available: {_NO_STATISTICS}")

    def alter_partition_column_statistics(
        self,
        table_path: ObjectPath,
        partition_spec: CatalogPartitionSpec,
        column_statistics: Any,
        ignore_if_not_exists: bool,
    ) -> None:
        """Say what is known."""
        raise NotAvailableError(f"Catalog.alter_partition_column_statistics is not available: {_NO_STATISTICS}")
