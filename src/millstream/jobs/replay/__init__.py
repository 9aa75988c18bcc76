"""An epoch of the past, run again and held against what was committed."""
