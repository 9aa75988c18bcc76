"""Translates syntax, or calls of the Table API, to a plan of relations, and the plan to nodes of the graph.

Binding resolves names and types; passes are pure functions over frozen relations, one file each; lowering emits the
graph nodes that every program consists of.
"""
