"""Binding, by topic: scopes, literals, calls, relations in FROM, groupings, windows, queries."""
