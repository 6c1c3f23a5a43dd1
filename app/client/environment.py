"""The environment variables of who asks a Foreshock; settings.py knows those of the server itself."""

from __future__ import annotations

URL, TOKEN, TOKEN_FILE, CA_FILE, CLUSTER = (
    f"FORESHOCK_{name}" for name in ("URL", "TOKEN", "TOKEN_FILE", "CA_FILE", "CLUSTER")
)
VARIABLES = (URL, TOKEN, TOKEN_FILE, CA_FILE, CLUSTER)
"""docs/cli.md says what each is for."""
