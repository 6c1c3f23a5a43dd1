"""How objects hang together: who selects, mounts, calls or may do what; what a change reaches; what leads to what."""
