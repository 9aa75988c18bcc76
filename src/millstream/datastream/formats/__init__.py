"""File and message formats, one module each, under the module paths PyFlink programs import them from."""
