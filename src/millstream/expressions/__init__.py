"""SQL expressions: data types, typed expressions, and signatures of functions. This package computes nothing.

It defines Flink's type rules once, for the planner, which checks programs against them, and for the runtime, whose
kernels (`runtime.expressions`) return values of these types.
"""
