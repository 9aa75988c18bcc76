"""A job's life on the driver: launched, run epoch by epoch, watched, stopped."""
