"""JSON texts: values in them, made of them, looked for in them."""
