"""Redis: values, hashes, streams and commands of one's own, exactly once (`pip install millstream[redis]`)."""
