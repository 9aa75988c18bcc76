"""The protocol that servers and clients of queries share: codes of refusals, keys and values as JSON, registrations."""
