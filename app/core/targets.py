"""Where else than in Slack's channels something is told: what a file of routes says of each target. Pure.

No secret stands there: a target names the file that holds it, which is read whenever something is sent, so that what is
renewed in it counts.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

TargetName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,62}$", description="a name like on-call")]
FilePath = Annotated[str, Meta(pattern=r"^/[^\x00]+$", description="an absolute path")]


class Webhook(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="webhook"):
    """A URL that is sent signed events (https://github.com/standard-webhooks/standard-webhooks).

    ``secret_file`` holds a secret (whsec_…), or two with a space or a line between them while one takes the other's
    place: then each event is signed with both. ``url_file`` is instead of ``url`` where that is a secret itself.
    """

    secret_file: FilePath
    url: str = ""
    url_file: FilePath | None = None

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if bool(self.url) == (self.url_file is not None):
            raise ValueError("a webhook needs one of url and url_file")


Target = Webhook


def is_target(place: str) -> bool:
    """Whether that is a target's name, not the ID of a channel: those begin with a capital letter."""
    return place[:1].islower()
