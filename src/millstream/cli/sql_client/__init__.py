"""`millstream sql`: an interactive SQL client that also runs scripts. Queries run as jobs in this process."""
