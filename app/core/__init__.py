"""Pure rules: plain values in, nouns out. No I/O, no clock, no framework."""
