"""The `millstream` command. Importing this package imports nothing else: `millstream --help` must be quick."""
