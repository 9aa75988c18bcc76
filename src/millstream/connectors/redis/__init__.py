"""Redis: values, hashes, streams and user-defined commands, exactly once (`pip install millstream[redis]`)."""
