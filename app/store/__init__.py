"""The only room with SQL: functions of a connection that take and return nouns, and never commit."""
