"""What a query knows of its session: CURRENT_DATABASE, CURRENT_WATERMARK, UUID."""
