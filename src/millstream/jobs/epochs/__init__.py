"""The driver's loop and its steps: plan input, run, commit, publish, sweep."""
