"""Tools for assistants over the Model Context Protocol: what who is on call asks, and nothing that writes."""
