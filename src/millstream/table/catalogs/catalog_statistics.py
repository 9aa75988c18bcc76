"""Partitions, statistics and models of Flink's catalogs, which a catalog in memory does not store.

Flink uses statistics to order joins in batch plans. Here reads return empty statistics, and writes are rejected.
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

_NO_PARTITIONS = "a catalog in memory stores no partitions. A filesystem table lists its own: PARTITIONED BY (…)"
_NO_STATISTICS = "plans do not use statistics: leave them out"


class CatalogStatistics:
    """Partitions, statistics and models of a catalog in memory, which are always empty."""

    def list_partitions(
        self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec | None = None
    ) -> list[CatalogPartitionSpec]:
        """Always empty: the catalog stores no partitions."""
        return []

    def get_partition(self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec) -> CatalogPartition:
        """A partition."""
        raise NotAvailableError(f"Catalog.get_partition is not available: {_NO_PARTITIONS}")

    def partition_exists(self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec) -> bool:
        """Whether the catalog stores a partition: never."""
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
        """Drops a partition."""
        raise NotAvailableError(f"Catalog.drop_partition is not available: {_NO_PARTITIONS}")

    def alter_partition(
        self,
        table_path: ObjectPath,
        partition_spec: CatalogPartitionSpec,
        new_partition: CatalogPartition,
        ignore_if_not_exists: bool,
    ) -> None:
        """Changes the properties of a partition."""
        raise NotAvailableError(f"Catalog.alter_partition is not available: {_NO_PARTITIONS}")

    def list_models(self, database_name: str) -> list[str]:
        """Always empty: the catalog stores no models."""
        return []

    def get_model(self, model_path: ObjectPath) -> CatalogModel:
        """A model."""
        raise NotAvailableError(f"Catalog.get_model is not available: {NO_MODELS}")

    def model_exists(self, model_path: ObjectPath) -> bool:
        """Whether a model exists: never."""
        return False

    def drop_model(self, model_path: ObjectPath, ignore_if_not_exists: bool) -> None:
        """Drops a model."""
        raise NotAvailableError(f"Catalog.drop_model is not available: {NO_MODELS}")

    def rename_model(self, model_path: ObjectPath, new_model_name: str, ignore_if_not_exists: bool) -> None:
        """Renames a model."""
        raise NotAvailableError(f"Catalog.rename_model is not available: {NO_MODELS}")

    def create_model(self, model_path: ObjectPath, model: CatalogModel, ignore_if_exists: bool) -> None:
        """A new model."""
        raise NotAvailableError(f"Catalog.create_model is not available: {NO_MODELS}")

    def alter_model(self, model_path: ObjectPath, new_model: CatalogModel, ignore_if_not_exists: bool) -> None:
        """Replaces a model."""
        raise NotAvailableError(f"Catalog.alter_model is not available: {NO_MODELS}")

    def get_table_statistics(self, table_path: ObjectPath) -> CatalogTableStatistics:
        """The size of a table, which is always unknown."""
        return CatalogTableStatistics()

    def get_table_column_statistics(self, table_path: ObjectPath) -> CatalogColumnStatistics:
        """Statistics of a table's values, which are always empty."""
        return CatalogColumnStatistics()

    def get_partition_statistics(
        self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec
    ) -> CatalogTableStatistics:
        """The size of a partition, which is always unknown."""
        return CatalogTableStatistics()

    def bulk_get_partition_statistics(
        self, table_path: ObjectPath, partition_specs: list[CatalogPartitionSpec]
    ) -> list[CatalogTableStatistics]:
        """The sizes of partitions, which are always unknown."""
        return [CatalogTableStatistics() for _ in partition_specs]

    def get_partition_column_statistics(
        self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec
    ) -> CatalogColumnStatistics:
        """Statistics of a partition's values, which are always empty."""
        return CatalogColumnStatistics()

    def bulk_get_partition_column_statistics(
        self, table_path: ObjectPath, partition_specs: list[CatalogPartitionSpec]
    ) -> list[CatalogColumnStatistics]:
        """Statistics of partitions' values, which are always empty."""
        return [CatalogColumnStatistics() for _ in partition_specs]

    def alter_table_statistics(self, table_path: ObjectPath, table_statistics: Any, ignore_if_not_exists: bool) -> None:
        """Sets statistics."""
        raise NotAvailableError(f"Catalog.alter_table_statistics is not available: {_NO_STATISTICS}")

    def alter_table_column_statistics(
        self, table_path: ObjectPath, column_statistics: Any, ignore_if_not_exists: bool
    ) -> None:
        """Sets statistics."""
        raise NotAvailableError(f"Catalog.alter_table_column_statistics is not available: {_NO_STATISTICS}")

    def alter_partition_statistics(
        self,
        table_path: ObjectPath,
        partition_spec: CatalogPartitionSpec,
        partition_statistics: Any,
        ignore_if_not_exists: bool,
    ) -> None:
        """Sets statistics."""
        raise NotAvailableError(f"Catalog.alter_partition_statistics is not available: {_NO_STATISTICS}")

    def alter_partition_column_statistics(
        self,
        table_path: ObjectPath,
        partition_spec: CatalogPartitionSpec,
        column_statistics: Any,
        ignore_if_not_exists: bool,
    ) -> None:
        """Sets statistics."""
        raise NotAvailableError(f"Catalog.alter_partition_column_statistics is not available: {_NO_STATISTICS}")
