"""Delta tables: data files written by tasks, one transaction per epoch on the driver."""
