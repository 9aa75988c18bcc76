"""Turns a program into a running job: store, log, driver, query server."""
