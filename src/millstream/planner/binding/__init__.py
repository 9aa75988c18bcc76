"""Binding, by what is bound: scopes of names, literals, calls, what stands in FROM, groupings, windows, queries."""
