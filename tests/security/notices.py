"""Who is told of changes that hold secrets, one of each kind, and what they are told."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from aiohttp import web
from aiosmtpd.smtp import SMTP

from tests.canaries import Field, Thing
from tests.core.changes.test_canaries import ANYWHERE, PLAIN, _template
from tests.listening import listening, stop
from tests.notify.double import CHANNEL, Workspace
from tests.notify.test_mail import Post
from tests.security.sown import CLUSTER, Sent

PLACES = [*((place, False) for place in PLAIN["apps", "Deployment"]), *((place, True) for place in ANYWHERE)]
"""Where a Deployment may hold a secret, and whether it is known there by its look alone."""
KINDS = ("webhook", "teams", "slack_webhook", "email")


@dataclass
class Targets:
    """Takes whatever targets are told: ``posted`` by kind of target, as it came, and mail."""

    posted: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in KINDS if kind != "email"})
    mail: Post = field(default_factory=Post)
    url: str = ""
    port: int = 0

    async def take(self, request: web.Request) -> web.Response:
        self.posted[request.match_info["kind"]].append(f"{dict(request.headers)} {await request.text()}")
        return web.Response(text="ok")

    def texts(self) -> dict[str, list[str]]:
        """All that was told, readable, by kind of target."""
        return self.posted | {"email": [_read(one) for one in self.mail.taken]}

    def events(self) -> list[dict[str, Any]]:
        """What the receiver of signed webhooks was sent."""
        return [json.loads(text[text.index("} {") + 2 :]) for text in self.posted["webhook"]]


def _read(mail: EmailMessage) -> str:
    return "\n".join(
        [*map(str, mail.values()), *(part.get_content() for part in mail.walk() if not part.is_multipart())]
    )


def channel(number: int) -> str:
    """The channel that is told of what happens in a namespace."""
    return f"C{number:09}"


@asynccontextmanager
async def targets() -> AsyncIterator[Targets]:
    """One that listens to all of them."""
    made, loop = Targets(), asyncio.get_running_loop()
    app = web.Application()
    app.router.add_post("/{kind}", made.take)
    server = await loop.create_server(lambda: SMTP(made.mail, hostname="mail.example", loop=loop), "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with listening(app) as url:
        made.url = url
        try:
            yield made
        finally:
            await stop(server)


def routes_file(told: Targets, workspace: Workspace, sown: Field, folder: Path) -> Path:
    """Every change and incident goes to Slack's channel and to a target of each kind; besides, each of the namespaces
    has a channel and targets of its own, so that what happens there is told by itself and not in a digest."""
    key = sown.canary("what webhooks are signed with").encode() + b"-" * 12
    (folder / "signs").write_text(f"whsec_{base64.b64encode(key).decode()}")
    for kind in KINDS:
        (folder / f"url-{kind}").write_text(f"{told.url}/{kind}")
    of_kind = {
        "webhook": {"kind": "webhook", "url": f"{told.url}/webhook", "secret_file": str(folder / "signs")},
        "teams": {"kind": "teams", "url_file": str(folder / "url-teams")},
        "slack_webhook": {"kind": "slack_webhook", "url_file": str(folder / "url-slack_webhook")},
        "email": {
            "kind": "email",
            "to": ["on-call@example.com"],
            "from": "foreshock@example.com",
            "host": "127.0.0.1",
            "port": told.port,
            "security": "none",
        },
    }
    both = ["changes", "incidents"]
    routes: list[dict[str, Any]] = [{"channel": CHANNEL, "tell": both}]
    named: dict[str, Any] = {}
    for kind, target in of_kind.items():
        of_all = kind.replace("_", "-")
        named[of_all] = target
        routes.append({"target": of_all, "tell": both})
        for number in range(len(PLACES)):
            named[f"{of_all}-{number}"] = target
            routes.append({"target": f"{of_all}-{number}", "namespaces": [f"told-{number}"]})
    for number in range(len(PLACES)):
        workspace.channels.add(channel(number))
        routes.append({"channel": channel(number), "namespaces": [f"told-{number}"]})
    file = folder / "routes.yaml"
    file.write_text(json.dumps({"routes": routes, "targets": named}))
    return file


def rollouts(sown: Field) -> Iterator[Sent]:
    """A Deployment in each namespace, which is made, then changed to hold a secret; its rollout fails,
    and says another."""
    before = len(sown.audit)
    for number, (place, shaped) in enumerate(PLACES):
        thing = Thing("apps", "Deployment", "web", namespace=f"told-{number}")
        _happens(sown, "create", thing.body(_template({}), _status(1, sown)), thing)
        secret = place(sown.canary(f"a change that is told, {number}", shaped=shaped))
        changed = (_template({}), secret, {"spec": {"minReadySeconds": 7}, "metadata": {"generation": 2}})
        _happens(sown, "update", thing.body(*changed, _status(1, sown)), thing)
        said = f"login failed: password={sown.canary(f'why a rollout failed, {number}')}"
        _happens(sown, "update", thing.body(*changed, _status(2, sown, failed=said)), thing, subresource="status")
    told, sown.audit = sown.audit[before:], sown.audit[:before]
    events = {"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": [json.loads(line) for line in told]}
    yield Sent(f"/intake/audit/{CLUSTER}", json.dumps(events).encode(), "audit")


def _happens(sown: Field, verb: str, whole: dict[str, Any], thing: Thing, **more: str) -> None:
    sown.request(verb, thing, more=more, requestObject=whole, responseObject=whole)


def _status(observed: int, sown: Field, *, failed: str = "") -> dict[str, Any]:
    counts = {"observedGeneration": observed, "replicas": 1, "updatedReplicas": 1, "availableReplicas": int(not failed)}
    at = sown.now()
    condition = {
        "type": "Progressing",
        "status": "False",
        "reason": "ProgressDeadlineExceeded",
        "message": failed,
        "lastUpdateTime": at,
        "lastTransitionTime": at,
    }
    return {"status": counts | ({"conditions": [condition]} if failed else {})}
