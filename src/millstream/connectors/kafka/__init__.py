"""Kafka: topics as sources and sinks, through confluent-kafka (`pip install millstream[kafka]`)."""
