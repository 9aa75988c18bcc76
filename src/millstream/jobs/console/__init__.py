"""The display of a running job, and its handling of Ctrl-C."""
