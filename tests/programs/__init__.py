"""Programs and relations with a known answer, which the suites run in memory, on Spark and through failures."""
