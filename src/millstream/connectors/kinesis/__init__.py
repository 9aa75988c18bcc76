"""Kinesis: streams as sources and sinks, and Firehose as a sink, by boto3 (`pip install millstream[kinesis]`)."""
