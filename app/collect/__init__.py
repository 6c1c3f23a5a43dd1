"""The outside world, read and turned into batches."""
