"""The physical plan: plain data, made by the compiler and executed by the runtime."""
