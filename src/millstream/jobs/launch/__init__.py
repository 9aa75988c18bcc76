"""From a program to a running job: store, log, driver, query server."""
