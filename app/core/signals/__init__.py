"""What turned bad, since when, and what it is about: of calls, requests, metrics, complaints and write fights."""
