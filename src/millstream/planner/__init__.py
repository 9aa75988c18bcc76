"""From syntax, or calls of the Table API, to a plan of relations, and from there to the graph.

Binding gives names and types their meaning; passes are pure functions over frozen relations, one file each; lowering
makes nodes of the graph that every program is made of.
"""
