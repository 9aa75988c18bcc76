"""Kinesis: streams as sources and sinks, and Firehose as a sink, through boto3 (`pip install millstream[kinesis]`)."""
