"""What pages and tables show, placed on an axis."""
