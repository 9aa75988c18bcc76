"""RabbitMQ: queues as sources and sinks, by pika (`pip install millstream[rabbitmq]`)."""
