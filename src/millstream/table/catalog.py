"""Catalogs, their objects, and the columns of tables: PyFlink's names for `catalogs`."""

from __future__ import annotations

from millstream.pyflink_names import add_pyflink_names
from millstream.table.catalogs.columns import (
    Column,
    ComputedColumn,
    Constraint,
    MetadataColumn,
    PhysicalColumn,
    UniqueConstraint,
    WatermarkSpec,
)
from millstream.table.catalogs.in_memory import Catalog, HiveCatalog, JdbcCatalog
from millstream.table.catalogs.objects import (
    CatalogBaseTable,
    CatalogColumnStatistics,
    CatalogDatabase,
    CatalogDescriptor,
    CatalogFunction,
    CatalogModel,
    CatalogPartition,
    CatalogPartitionSpec,
    CatalogTableStatistics,
    ObjectIdentifier,
    ObjectPath,
    Procedure,
)
from millstream.table.catalogs.resolved_schema import ResolvedSchema

__all__ = [
    "Catalog",
    "CatalogBaseTable",
    "CatalogColumnStatistics",
    "CatalogDatabase",
    "CatalogDescriptor",
    "CatalogFunction",
    "CatalogModel",
    "CatalogPartition",
    "CatalogPartitionSpec",
    "CatalogTableStatistics",
    "Column",
    "ComputedColumn",
    "Constraint",
    "HiveCatalog",
    "JdbcCatalog",
    "MetadataColumn",
    "ObjectIdentifier",
    "ObjectPath",
    "PhysicalColumn",
    "Procedure",
    "ResolvedSchema",
    "UniqueConstraint",
    "WatermarkSpec",
]

add_pyflink_names(globals())
