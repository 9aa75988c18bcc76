"""What a job was configured with, each group of settings as one frozen type."""
