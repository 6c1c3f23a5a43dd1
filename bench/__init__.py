"""What the store can do, beside the limit that the database itself sets, in one run: ``python -m bench``."""
