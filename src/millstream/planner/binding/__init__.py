"""Binding, by what is bound: scopes of names, literals, expressions, sources in FROM, aggregations, windows, queries."""
