"""`'connector' = 'datagen'`: rows of random values and sequences, which are the same at every replay."""
