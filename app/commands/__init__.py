"""What the command line does beyond serving: import, evaluate."""
