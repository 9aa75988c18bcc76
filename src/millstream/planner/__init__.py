"""Translates SQL syntax or Table API calls into a plan of relations, and the plan into graph nodes.

Binding resolves names and types; passes are pure functions over frozen relations, one file each; lowering emits the
graph nodes that make up every program.
"""
