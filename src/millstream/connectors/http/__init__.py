"""HTTP: records sent to a web service as requests that it can recognise when they come again."""
