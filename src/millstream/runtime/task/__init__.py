"""One task of one epoch: what it is told, what it runs, what it answers; and the epoch without Spark."""
