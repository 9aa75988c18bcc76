"""The driver's loop and its steps: plan the input, run, commit, publish, sweep."""
