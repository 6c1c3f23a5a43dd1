"""The headers that every answer leaves with, errors and static files too."""

from __future__ import annotations

from urllib.parse import urlsplit

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; object-src 'none'"
)
ALWAYS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer browsers send "Origin: null" with our own forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
FOR_EVER = "public, max-age=31536000, immutable"


def is_secure(public_url: str) -> bool:
    """Whether people reach us over TLS: decides on Secure cookies and on HSTS."""
    return urlsplit(public_url).scheme == "https"


def of(public_url: str, *, for_ever: bool = False) -> dict[str, str]:
    """The headers of an answer, which may be kept ``for_ever`` or not at all: what shows a cluster is never stored by a
    browser or a proxy."""
    found = {**ALWAYS, "cache-control": FOR_EVER if for_ever else "no-store"}
    if is_secure(public_url):
        found["strict-transport-security"] = "max-age=31536000"
    return found
