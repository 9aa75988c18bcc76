"""The lifecycle of a job on the driver: launch, epochs, display, requests, end."""
