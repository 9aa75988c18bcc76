"""What servers and clients of queries have in common: names of refusals, keys and values as JSON, registrations."""
