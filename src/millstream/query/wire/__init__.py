"""The protocol between query servers and clients: refusal codes, keys and values as JSON, registrations."""
