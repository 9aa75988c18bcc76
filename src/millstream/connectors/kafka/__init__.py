"""Kafka: topics as sources and sinks, by confluent-kafka (`pip install millstream[kafka]`)."""
