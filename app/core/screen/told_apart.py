"""What calls can be told apart by: who completes a command line knows it, too."""

from __future__ import annotations

BY: dict[str, tuple[str, ...]] = {
    "user": ("user",),
    "pod": ("pod",),
    "user_agent": ("user_agent",),
    "verb": ("verb",),
    "resource": ("api_group", "resource"),
    "namespace": ("namespace",),
    "code": ("code",),
    "list_class": ("list_class",),
    "waited_for": ("waited_for",),
}
"""What calls can be told apart by -> the parts of their key that say it."""
USUAL = ("user", "verb", "resource")
