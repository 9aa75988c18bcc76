"""Connectors as tables of SQL: what stands in WITH (…) becomes a source or a sink."""
