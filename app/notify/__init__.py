"""What others are told: Slack."""
