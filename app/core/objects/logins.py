"""What says how to log in to a server, a DSN or a connection string: where the server is may be shown, nothing else.

Whom a program calls often stands nowhere else in its manifest.
"""

from __future__ import annotations

import re
from functools import lru_cache

from app.core.objects.redact_rules import TAG, is_random

_KEY = re.compile(r"(?i)dsn|conn(?:ection)?[_-]?(?:str(?:ing)?|ur[il])(?![a-z])")
_HOST = r"(?P<host>[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)"
_PORT = r"(?::\d{1,5})?"
_SCHEME = r"[a-z][a-z0-9+.-]{0,30}://"
_FORMS = (
    re.compile(rf"(?P<before>{_SCHEME})[^/?#\s]*(?P<after>@{_HOST}{_PORT})(?:[/?#][^@]*)?"),
    re.compile(rf"(?P<before>)\S*(?P<after>@tcp\({_HOST}{_PORT}\))(?:/[^@()]*)?"),
    re.compile(rf"(?P<before>host={_HOST}(?: port=\d{{1,5}})? )(?P<after>).*"),
    re.compile(rf"(?P<before>(?=[^:]*\.){_HOST}:\d{{1,5}}/)(?P<after>)[^@]*"),
)
"""A URL with who logs in (RFC 3986), a DSN of go-sql-driver/mysql, one of libpq that begins with its host, and Oracle's
host:port/service.

An ``@`` further back might be one of the password: of such a value nothing is kept.
"""


def server(key: str, value: str) -> tuple[str, str] | None:
    """What may stand before and after the fingerprint of a secret value: its scheme, host and port.

    None where the key names no DSN, or the value is none of the known forms.
    """
    if not _names_one(key):
        return None
    found = next((told for form in _FORMS if (told := form.fullmatch(value))), None)
    return None if found is None or is_random(found["host"], "") else (found["before"], found["after"])


@lru_cache(maxsize=4096)
def _names_one(key: str) -> bool:
    return _KEY.search(key) is not None


def is_masked(key: str, value: str) -> bool:
    """Whether such a value shows nothing else any more."""
    told = server(key, value)
    return told is not None and TAG.fullmatch(value.removeprefix(told[0]).removesuffix(told[1])) is not None
