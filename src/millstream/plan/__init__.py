"""The physical plan: plain data, created by the compiler and executed by the runtime."""
