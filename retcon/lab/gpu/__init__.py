"""A transformers model in this process, in large batches."""
