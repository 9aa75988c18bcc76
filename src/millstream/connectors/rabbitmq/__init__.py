"""RabbitMQ: queues as sources and sinks, through pika (`pip install millstream[rabbitmq]`)."""
