"""What one object says: its kind, its desired state and status, its secrets taken out, how two of its states differ."""
