"""The physical plan: plain data below the compiler that makes it and the runtime that runs it."""
