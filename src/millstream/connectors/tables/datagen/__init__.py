"""`'connector' = 'datagen'`: rows of random values and sequences, identical in every replay."""
