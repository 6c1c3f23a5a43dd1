"""Secrets in texts -> fingerprints: messages, lines of files, arguments, addresses."""

from __future__ import annotations

import hmac
import json
import re

from app.core.model import Json
from app.core.objects import logins, secret_names
from app.core.objects import redact_rules as rules
from app.core.objects.own_rules import NO_RULES, Names, OwnRules

BENIGN = 10_000
"""Texts, and values by their keys, that were found harmless and are remembered; then it begins anew."""
_BAD = {0: "\ufffd", **dict.fromkeys(range(0xD800, 0xE000), "\ufffd")}
_sorted = json.JSONEncoder(sort_keys=True, default=str, check_circular=False).encode
"""As json.dumps, a quarter faster. Another encoder writes other bytes: fingerprints that are recorded would be lost."""


def clean(text: str) -> str:
    """Text that PostgreSQL and UTF-8 can hold: NUL and lone surrogates become U+FFFD."""
    if text.isascii() and "\0" not in text:
        return text
    return text.translate(_BAD)


class TextRedactor:
    """Redacts with one installation's key, and by its rules besides those that are built in. Holds no secrets: only
    texts found harmless are remembered."""

    def __init__(self, key: bytes, own: OwnRules = NO_RULES) -> None:
        if len(key) < 16:
            raise ValueError("the redaction key needs at least 16 bytes")
        self.key, self.own = key, own
        self._key = key[:64]
        self._names = Names(own.names) if own.names else None
        self._benign: set[str] = set()

    def fingerprint(self, value: Json) -> str:
        """The stand-in for a secret. Equal values have equal stand-ins; a stand-in stands for itself."""
        if isinstance(value, str):
            if rules.WHOLE_TAG.match(value):
                return value
            data = value.encode("utf-8", "replace")
        else:
            data = _sorted(value).encode("utf-8", "replace")
        return f"<redacted:{hmac.digest(self._key, data, 'sha256').hex()[:8]}>"

    def text(self, text: str) -> str:
        """A message, a line of a file, an argument: secrets by shape and by assignment taken out."""
        if text in self._benign:
            return text
        found = clean(text)
        if self._may_hide(found):
            for _ in range(4):
                before, found = found, self._once(found)
                if found == before:
                    break
            else:
                return self.fingerprint(text)
        if found == text and len(text) <= 512:
            if len(self._benign) >= BENIGN:
                self._benign.clear()
            self._benign.add(text)
        return found

    def _may_hide(self, text: str) -> bool:
        named = self._names is not None and self._names.may_stand_in(text) is not None
        return named or (len(text) >= 6 and rules.may_hide(text))

    def uri(self, uri: str) -> str:
        """A request URI with the values of token-like and ``command`` parameters taken out."""
        masked = rules.QUERY.sub(self._tail, clean(uri))
        masked = self._names.query.sub(self._tail, masked) if self._names else masked
        path, mark, query = masked.partition("?")
        return self.text(path) + mark + self.text(query)

    def _once(self, text: str) -> str:
        if "\n" in text:
            text = self._blocks(text, rules.BLOCK)
            text = self._blocks(text, self._names.block) if self._names else text
        text = rules.SHAPES.sub(lambda m: self.fingerprint(m.group(0)), text)
        text = rules.AUTHORITY.sub(self._tail, text)
        for sign, pattern in rules.LOGINS:
            text = pattern.sub(self._tail, text) if sign in text else text
        text = rules.SCHEME.sub(self._scheme, text)
        for sign, pattern in rules.BY_NAME:
            text = pattern.sub(self._named, text) if sign in text else text
        text = rules.ASSIGNED.sub(self._assigned, text)
        text = self._names.assigned.sub(self._assigned, text) if self._names else text
        return rules.RUN.sub(lambda m: self._run(m.group(0), text, at=m.start()), text)

    def _tail(self, match: re.Match[str]) -> str:
        return f"{match['head']}{self.fingerprint(match['value'])}"

    def _scheme(self, match: re.Match[str]) -> str:
        value: str = match["value"]
        if len(value) < 20 and value.isalpha() and value.islower():
            return match.group(0)
        return self._tail(match)

    def _assigned(self, match: re.Match[str]) -> str:
        name, separator, value = (match[part] for part in ("name", "sep", "value"))
        quote_mark = value[0] if value[0] in "\"'" and len(value) > 1 and value[-1] == value[0] else ""
        bare = value[1:-1] if quote_mark else value
        if rules.WHOLE_TAG.match(bare) or not self._is_secretive(name, bare):
            return match.group(0)
        return f"{name}{separator}{quote_mark}{self._hidden(name, bare)}{quote_mark}"

    def _hidden(self, key: str, value: str) -> str:
        """What stands for a secret value: its fingerprint; of a DSN also where its server is."""
        before, after = logins.server(key, value) or ("", "")
        return value if logins.is_masked(key, value) else f"{before}{self.fingerprint(value)}{after}"

    def _named(self, match: re.Match[str]) -> str:
        return self._tail(match) if self._is_secretive(match["name"], match["value"]) else match.group(0)

    def _is_secretive(self, name: str, value: str) -> bool:
        return secret_names.is_secretive(name, value) or (self._names is not None and self._names.holds(name))

    def _run(self, run: str, text: str, *, at: int) -> str:
        return self.fingerprint(run) if rules.is_random(run, text[max(0, at - 24) : at]) else run

    def _blocks(self, text: str, block: re.Pattern[str]) -> str:
        return rules.without_blocks(text, block, self.fingerprint)
