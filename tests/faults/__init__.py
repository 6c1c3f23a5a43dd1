"""The real program against a real control plane, while everything that may break does: `make faults`."""
