"""Which changes compete for an incident, how well each explains what turned bad, and the evidence for and against."""
