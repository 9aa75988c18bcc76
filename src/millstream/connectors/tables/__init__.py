"""Connectors as SQL tables: WITH (…) options define a source or a sink."""
