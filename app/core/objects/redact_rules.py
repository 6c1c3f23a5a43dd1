"""What a secret looks like in a text: by the name that it is given there, and by its own shape.

Word lists and shapes follow the public formats: RFC 7519 (JWT), RFC 7468 (PEM), RFC 7617 and 6750 (Basic, Bearer), the
documented prefixes of AWS access keys, GitHub, GitLab, Slack, Stripe, Google and npm tokens.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping

from app.core.model import Json

TAG = re.compile(r"<redacted:[0-9a-z-]+>")
WHOLE_TAG = re.compile(r"<redacted:[0-9a-z-]+>\Z")


def opened_parts(old: Mapping[str, Json] | None, new: Mapping[str, Json]) -> dict[str, Json]:
    """The parts of an object that were one fingerprint and are kept in their own parts now: of another version or rules
    of what is secret, and not for what somebody wrote, where the object's generation is the same."""
    hidden = (key for key, part in (old or {}).items() if isinstance(part, str) and WHOLE_TAG.match(part))
    return {key: new[key] for key in hidden if isinstance(new.get(key), dict | list)}


_HELD = (
    r"(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?"
    r"|account[_-]?key|requirepass|masterauth|storepass|keypass|connection[_-]?string|client[_-]?secret|auth[_-]?token)"
    r"[\w-]{0,128}+"
)
_NAMES = rf"(?:[\w.-]{{0,128}}{_HELD}|dsn|pw)"
"""Bounded and possessive: else the time that a text takes grows with the cube of its length ("passwordpassword-")."""


def assigned(names: str) -> re.Pattern[str]:
    """Where a value is given to one of these names, which are a regular expression."""
    return re.compile(
        rf"(?i)(?P<name>(?<![\w]){names})(?P<sep>[\"']?\s*(?:=>|[:=])\s*)"
        r"(?P<value>\"(?:[^\"\\]|\\.)+(?:\"|\Z)|'[^']+(?:'|\Z)"
        r"|(?!<redacted:)(?!unexpected status\b)(?![|>][+-]?\d?[ \t]*(?:\n|\Z))[^\s,;&\"'}\])]+)"
    )


ASSIGNED = assigned(rf"(?:(?<![\w.-])(?=[\w.-]++[\"']?\s*[:=])[\w.-]*{_HELD}|dsn|pw)")
"""key=value, key: value, "key": "value" inside a longer text, also where that ends within the quotes; not how every
refused pull is told ("failed to fetch oauth token: unexpected status: 403", https://github.com/containerd/containerd/issues/4982).
A name is all of the words that stand together, so that each is looked through once ("s.s.s."), and only one to which a
value is given."""

SPACED = re.compile(
    rf"(?i)(?P<head>(?<![\w-])-{{1,2}}(?P<name>{_NAMES})[ \t]+)"
    r"(?P<value>\"[^\"]+\"|'[^']+'|(?!<redacted:)[^\s\"'<|&;-][^\s\"']*)"
)
"""A flag and its value within a command, as ``sh -c`` takes it: --db-password x."""

DIRECTIVE = re.compile(
    r"(?im)(?P<head>^[ \t]*(?P<name>requirepass|masterauth)[ \t]+)(?P<value>(?!<redacted:)[^\s<][^\n]*)"
)
"""As Redis' own file has its passwords."""

ELEMENT = re.compile(rf"(?i)(?P<head><(?P<name>{_NAMES})(?:\s[^<>]{{0,200}})?>)(?P<value>(?!<redacted:)[^<]+)(?=</)")
ATTRIBUTE = re.compile(
    r"(?P<head>\b(?:[nN]ame|[kK]ey)=[\"'](?P<name>[\w.:/-]{1,253})[\"']\s{1,20}value=[\"'])(?P<value>(?!<redacted:)[^\"'<>]+)"
)
PROPERTY = re.compile(
    r"(?i)(?P<head><name>(?P<name>[\w.:/-]{1,253})</name>\s{0,200}<value>)(?P<value>(?!<redacted:)[^<]+)"
)
"""Values as XML has them: <password>x</password>, <add key="Password" value="x"/>, and Hadoop's
<name>password</name><value>x</value>."""

NAMED = re.compile(
    r"(?P<head>\\?[\"'](?:name|key)\\?[\"']\s*:\s*\\?[\"'](?P<name>[\w./-]{1,253})\\?[\"']\s*,"
    r"\s*\\?[\"']value\\?[\"']\s*:\s*\\?[\"'])(?P<value>(?!<redacted:)[^\"'\\]+)"
)
"""An environment variable as JSON inside a text, also as JSON in a string: "name": "TOKEN", "value": "x"."""

AUDIT_VERSION = "audit.k8s.io/"
"""How the apiVersion of an audit event begins. No value in base64 does: it has no dot."""
Envelope = Mapping[str, "Envelope | bool"]
ENVELOPE: Envelope = {
    **dict.fromkeys(("kind", "apiVersion", "level", "auditID", "stage", "requestURI", "verb", "userAgent"), True),
    **dict.fromkeys(("requestReceivedTimestamp", "stageTimestamp"), True),
    "user": {"username": True},
    "impersonatedUser": {"username": True},
    "objectRef": dict.fromkeys(("resource", "namespace", "name", "apiGroup", "apiVersion", "subresource"), True),
    "responseStatus": {"code": True},
}
"""What of an audit event that cannot be used may be shown: what surrounds its objects, and no message."""


def flag(names: str) -> re.Pattern[str]:
    """As FLAG, of these names."""
    return re.compile(rf"(?i)\A-{{1,2}}(?:{names})\Z")


FLAG = flag(_NAMES)
"""A flag whose value is the next argument."""


def block(names: str) -> re.Pattern[str]:
    """As BLOCK, of these names. Only where such a line's key is followed by a block the key is looked through."""
    opened = r"[\"']?:[ \t]*[|>][+-]?\d?[ \t]*$"
    return re.compile(rf"(?im)^(?P<indent>[ \t]*)(?:- )?[\"']?(?=[\w./-]++{opened}){names}{opened}")


BLOCK = block(_NAMES)
"""A YAML block scalar under a secretive key: the secret is the deeper indented lines that follow."""


def without_blocks(text: str, block: re.Pattern[str], hidden: Callable[[str], str]) -> str:
    """A text whose YAML block scalars under secretive keys are ``hidden``: their deeper indented lines go."""
    if not block.search(text):
        return text
    out: list[str] = []
    under: list[str] = []
    indent = -1
    for line in [*text.split("\n"), None]:
        depth = len(line) - len(line.lstrip()) if line is not None else -1
        if indent >= 0 and line is not None and (not line.strip() or depth > indent):
            under.append(line)
            continue
        if indent >= 0:
            inner = "\n".join(under).strip()
            if inner:
                out.append(" " * (indent + 2) + hidden(inner))
            under, indent = [], -1
        if line is not None:
            out.append(line)
            if block.match(line):
                indent = depth
    return "\n".join(out)


SHAPES = re.compile(
    r"-----BEGIN [A-Z0-9 ]+-----[\s\S]*?(?:-----END [A-Z0-9 ]+-----|\Z)"
    r"|\b(?=[ASdeghnprsxy])(?:"
    r"(?:(?<!-)eyJ[\w-]{8,4096}+|eyJ[\w-]{8,256}+|eyJ(?:(?!-eyJ)[\w-]){8,4096}+)(?:\.[\w-]*){1,4}"
    r"|(?:AKIA|ASIA|AGPA|AROA|ANPA)[A-Z0-9]{12,}"
    r"|(?:gh[pousr]_|github_pat_|glpat-|gldt-|glrt-|xox[abposr]-|xapp-|npm_|pypi-|dop_v1_|hvs\.|hvb\.|s\.)[\w-]{16,}"
    r"|(?:[sr]k_(?:live|test)_|SG\.|AIza|ya29\.|sk-(?:ant-|proj-)?)[\w.-]{16,})"
)
"""What begins none of them is passed over by its first letter. A JWT behind a hyphen whose header is longer than 256
characters is read from the last hyphen before one: from each of them ("eyJ-eyJ-") it took a hundred times as long."""
AUTHORITY = re.compile(r"(?P<head>\b[a-zA-Z][\w+.-]{0,30}://[^\s/:@\"'<]*:)(?P<value>(?!<redacted:)[^\s/\"'<]+)(?=@)")
Sought = tuple[tuple[str, re.Pattern[str]], ...]
"""Each pattern with what stands in every text that it fits: to look for that takes a hundredth of the time."""


def _mysql(network: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?P<head>(?<![<\w.-])[\w.-]{{1,64}}:)(?P<value>(?!<redacted:)[^\s@\"'<]{{1,256}}+)(?=@{network}\()"
    )


LOGINS: Sought = (
    ("@", re.compile(r"(?P<head>\bhttps?://)(?P<value>(?!<redacted:)[\w.~-]{20,256}+)(?=@)")),
    ("@tcp(", _mysql("tcp")),
    ("@unix(", _mysql("unix")),
    (
        "curl",
        re.compile(
            r"(?P<head>\bcurl\s(?:(?!\bcurl\s)[^\n|;]){0,500}?(?:-u|--user|--proxy-user)[ =]?[\"']?[\w.@+-]{1,64}:)"
            r"(?P<value>(?!<redacted:)[^\s\"'<]+)"
        ),
    ),
    (
        " '",
        re.compile(
            r"(?i)(?P<head>\b(?:identified {1,5}by|password) {1,5}(?:password {1,5})?')"
            r"(?P<value>(?!<redacted:)[^'\n<]+)"
        ),
    ),
    ("pass:", re.compile(r"(?P<head>-pass(?:in|out)?\s{1,5}pass:)(?P<value>(?!<redacted:)[^\s\"'<]+)")),
)
"""A token for a login in a URL, Go's MySQL driver (https://github.com/go-sql-driver/mysql#dsn-data-source-name), curl,
SQL's roles, openssl."""
_SETTING = (
    r"\s{{0,5}}[\"'](?P<name>[\w.-]{{1,128}})[\"']\s{{0,5}}{then}\s{{0,5}}[\"'])"
    r"(?P<value>(?!<redacted:)[^\"'\n<]+)(?=[\"']\s{{0,5}}(?:;|\)|$))"
)
INDEXED = re.compile(r"(?P<head>\[" + _SETTING.format(then=r"\]\s{0,5}="), re.MULTILINE)
DEFINED = re.compile(r"(?P<head>\bdefine\s{0,5}\(" + _SETTING.format(then=","), re.MULTILINE)
"""As programs have it in their settings: $c['password'] = 'x'; define('DB_PASSWORD', 'x');"""
BY_NAME: Sought = (
    (":", NAMED),
    ("-", SPACED),
    ("", DIRECTIVE),
    ("</", ELEMENT),
    ("value=", ATTRIBUTE),
    ("<value>", PROPERTY),
    ("[", INDEXED),
    ("define", DEFINED),
)
"""Where a value is secret if its name is."""
SCHEME = re.compile(
    r"(?i)(?P<head>\b(?:bearer|basic|negotiate|apikey)\s+)(?P<value>(?!<redacted:)[A-Za-z0-9+/._~=-]{8,})"
)
SHORT_P = re.compile(
    r"(?P<head>(?:\A|\s)-p\s?)(?P<value>(?!<redacted:)(?!\d{1,5}(?::\d{1,5})?(?:\s|\Z))"
    r"(?!(?:ort|rofile|prof|ath|roxy|refix|rint|lugin|aram|id|attern|arallel|olicy|eer|ing|ublic|rivileged)\w*)[^\s/-]\S*)"
)
"""`-pSECRET` and `-p SECRET` as database clients take it; ports and long single-dash flags are left."""


def query(names: str) -> re.Pattern[str]:
    """Where a URL's query gives a value to one of these names."""
    return re.compile(rf"(?i)(?P<head>[?&](?:{names})=)(?P<value>(?!<redacted:)[^&#\s]+)")


QUERY = query(r"command|[\w.-]*(?:token|password|secret|api_?key|signature|credential)")

RUN = re.compile(r"(?<![\w+/-])[A-Za-z0-9+/_-]{32,}={0,2}")
_HEX = re.compile(r"(?i)[0-9a-f]+\Z")
_UUID = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_DIGEST_BEFORE = re.compile(r"(?i)(?:sha(?:1|224|256|384|512)|md5|commit|revision|digest|checksum|hash)\W{0,3}\Z")

TRIGGER = re.compile(
    r"(?i)pass|pwd|secret|token|key|cred|dsn|masterauth|@tcp\(|@unix\(|curl|identified|\bpw\b|connection|bearer|basic|negotiate|://|eyJ|-----BEGIN|AKIA|ASIA|AGPA|AROA"
    r"|value\\?[\"']\s*:"
    r"|ANPA|gh[pousr]_|github_|gl(?:pat|dt|rt)-|xox|xapp-|npm_|pypi-|dop_v1|hvs\.|hvb\.|\bs\.|[sr]k[_-]|SG\.|AIza|ya29"
    r"|[A-Za-z0-9+/_-]{32}"
)
"""A necessary condition: a text without any of these holds no secret that the rules would know."""

_HINT = re.compile(  # each begins with a character, none with a class: so re skips what begins no word
    r"pass|pwd|secret|token|key|cred|dsn|masterauth|@tcp\(|@unix\(|curl|identified|pw|connection|bearer|basic|negotiate|://|eyj|-----begin|akia|asia|agpa|aroa"
    r"|value[\\\"']|anpa|gh[pousr]_|github_|gl(?:pat|dt|rt)-|xox|xapp-|npm_|pypi-|dop_v1|hvs\.|hvb\.|s\."
    r"|sk[_-]|rk[_-]|sg\.|aiza|ya29"
)
_LONG_RUN = re.compile(r"[A-Za-z0-9+/_-]{32}")
"""What is in every text that TRIGGER finds, in lower case: small letters alone are looked for eight times as fast."""


def may_hide(text: str) -> bool:
    """Whether a text may hold a secret that the rules would know: few do, and of most that is known at one look."""
    if text.isascii() and not _HINT.search(text.lower()) and not _LONG_RUN.search(text):
        return False
    return TRIGGER.search(text) is not None


def is_random(run: str, before: str) -> bool:
    """Whether a run of 32 and more characters looks like a key, not like a name, a path, a uid or a digest."""
    if _UUID.match(run):
        return False
    body = run.rstrip("=")
    if _HEX.match(body):
        return len(set(body.lower())) > 7 and len(body) != 40 and not _DIGEST_BEFORE.search(before[-24:])
    classes = sum((_UPPER.search(body) is not None, _LOWER.search(body) is not None, _digits(body) > 0))
    if classes == 3 and len(_TURN.findall(body)) >= 0.28 * len(body):
        return True
    longest = max(re.split(r"[-_/+]", body), key=len)
    return len(longest) >= 20 and _digits(longest) >= 3 and entropy(longest) >= 3.5


_UPPER, _LOWER = re.compile("[A-Z]"), re.compile("[a-z]")
_TURN = re.compile(r"[a-z](?=[A-Z0-9])|[A-Z](?=[a-z0-9])|[0-9](?=[A-Za-z])")
"""Where the class of character turns: often in a key, seldom in names, paths and CamelCase."""


def _digits(text: str) -> int:
    return sum(c.isdigit() for c in text)


def entropy(text: str) -> float:
    """Shannon entropy, bits a character."""
    size = len(text)
    return -sum(n / size * math.log2(n / size) for n in Counter(text).values())
