"""A job's settings: as the program gives them (`job_settings`), and as the driver goes by them (`driver_settings`)."""
