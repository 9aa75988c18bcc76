"""A job's settings: as set by the program (`job_settings`), and as the driver uses them (`driver_settings`)."""
