"""What is told of writes, by audit logs, watches and dumps -> changes, each once; rollouts, symptoms."""
