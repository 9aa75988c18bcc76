"""One task of one epoch: its specification, its run and its acknowledgement; and epochs without Spark."""
