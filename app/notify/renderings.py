"""A document as Microsoft Teams, a mail or Slack's incoming webhook takes it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from html import escape
from typing import Any

from app.core.targets import Email
from app.notify.blocks import SENTENCE, Json, code, context, link, section
from app.notify.blocks import escape as escaped
from app.notify.documents import Document
from app.notify.notice import IN_SECTION

OPEN = "Open in Foreshock"


def card(shown: Document) -> Json:
    """What a workflow of Teams posts: an Adaptive Card (https://adaptivecards.io/explorer/). Of its texts a *TextRun*
    alone knows no Markdown, so everything is one."""
    body = [_run(shown.title, weight="Bolder", size="Medium"), _run(" · ".join(shown.facts), isSubtle=True)]
    for part in shown.parts:
        style = {"fontType": "Monospace"} if part.is_code else {}
        first, *others = (_run(line, **style) for line in part.lines)
        body += [first, *(one | {"spacing": "None"} for one in others)]
    content = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": body,
        "actions": [{"type": "Action.OpenUrl", "title": OPEN, "url": shown.link}],
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "contentUrl": None, "content": content}]}


def _run(text: str, **style: Any) -> Json:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text or " ", **style}]}


def slack(shown: Document) -> Json:
    """What an incoming webhook of Slack takes: nothing in it can be clicked but the link."""
    facts = context(escaped(" · ".join(shown.facts), 4 * SENTENCE))
    blocks = [section(f"*{escaped(shown.title, 2 * SENTENCE)}*"), facts]
    for part in shown.parts:
        if part.is_code:
            blocks.append(code("\n".join(part.lines)))
        else:
            lines = [escaped(one, 2 * SENTENCE) for one in part.lines]
            blocks += [section("\n".join(lines[n : n + IN_SECTION])) for n in range(0, len(lines), IN_SECTION)]
    blocks.append(context(link(shown.link, OPEN)))
    return {"text": escaped(shown.title, 4 * SENTENCE), "blocks": blocks}


def mail(shown: Document, to: Email, *, key: str, made_at: datetime) -> EmailMessage:
    """A mail in text and in HTML. Its Message-ID is of ``key``, so that it is the same however often it is sent; what
    is told of one thing refers to one id, by which programs for mail put it together."""
    made, domain = EmailMessage(), to.sender.rpartition("@")[2]
    made["Subject"] = f"[Foreshock] {shown.title}"
    made["From"] = Address("Foreshock", addr_spec=to.sender)
    made["To"] = tuple(Address(addr_spec=one) for one in to.to)
    made["Date"] = format_datetime(made_at)
    made["Message-ID"] = f"<{key}@{domain}>"
    made["References"] = f"<{shown.about}.foreshock@{domain}>"
    made["Auto-Submitted"] = "auto-generated"  # RFC 3834: who is on holiday does not answer
    made.set_content("\n".join(_text(shown)))
    made.add_alternative("\n".join(_html(shown)), subtype="html")
    return made


def _text(shown: Document) -> Iterator[str]:
    yield shown.title
    yield " · ".join(shown.facts)
    for part in shown.parts:
        yield ""
        yield from (f"    {one}" if part.is_code else one for one in part.lines)
    yield from ("", shown.link)


def _html(shown: Document) -> Iterator[str]:
    yield f"<!doctype html><html><body><h2>{escape(shown.title)}</h2><p>{escape(' · '.join(shown.facts))}</p>"
    for part in shown.parts:
        if part.is_code:
            text = "\n".join(part.lines)
            yield f"<pre>{escape(text)}</pre>"
        else:
            yield f"<p>{'<br>'.join(escape(one) for one in part.lines)}</p>"
    yield f'<p><a href="{escape(shown.link)}">{OPEN}</a></p></body></html>'
