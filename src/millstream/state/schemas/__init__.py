"""Schema evolution of state: the schemas that values were saved with, and their conversion to the current one."""
