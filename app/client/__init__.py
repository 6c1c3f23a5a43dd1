"""The `foreshock` command as a client: what it asks of REST, and how it prints the answers."""
