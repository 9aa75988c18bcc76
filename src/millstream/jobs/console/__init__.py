"""What a person sees of a running job, and how Ctrl-C reaches it."""
