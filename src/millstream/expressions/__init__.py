"""SQL expressions: data types, typed expressions, and signatures of functions. This package computes nothing.

It defines Flink's type rules once: the planner checks programs against them, and the runtime's kernels
(`runtime.expressions`) return values of these types.
"""
