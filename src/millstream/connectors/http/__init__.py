"""HTTP: sends records to a web service as requests with idempotency keys."""
