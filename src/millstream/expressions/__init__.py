"""What a SQL expression is: data types, typed expressions, and the signatures of functions. Nothing is computed here.

Flink's rules of types stand here once, for the planner, which checks programs by them, and for the runtime, whose
kernels (`runtime.expressions`) give what the types promise.
"""
