"""What is secret by its name: fields, files of a ConfigMap, kinds of custom resources."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

_STRONG = frozenset(
    {
        *("password", "passwords", "passwd", "pwd", "passphrase", "passwort", "pw", "secret", "secrets", "token"),
        *("tokens", "apikey", "apikeys", "credential", "credentials", "creds", "cred", "bearer", "cookie", "salt"),
        *("dsn", "jwt", "privatekey", "secretkey", "accesskey", "htpasswd", "pgpass", "otp", "pat", "pass"),
    }
)
_WEAK = frozenset(
    {"auth", "authorization", "conn", "private", "cert", "certificate", "key", "keys", "signature", "pin"}
)
"""Words that often name something else: a number, a path, a switch or a short word beside them is kept."""

_PAIRS = frozenset(
    {("api", "key"), ("access", "key"), ("connection", "string"), ("connection", "uri"), ("signing", "key")}
)
_STRONG_KEYS = frozenset(
    {"api", "access", "private", "secret", "signing", "encryption", "master", "account", "shared", "ssh"}
)

_TAILS = frozenset(
    {
        *("name", "names", "namespace", "ref", "refs", "reference", "selector", "path", "paths", "file", "dir", "mode"),
        *(
            "type",
            "enabled",
            "disabled",
            "ttl",
            "expiration",
            "expiry",
            "expires",
            "seconds",
            "minutes",
            "hours",
            "days",
        ),
        *(
            "timeout",
            "duration",
            "period",
            "interval",
            "issuer",
            "audience",
            "audiences",
            "count",
            "max",
            "min",
            "size",
        ),
        *("length", "policy", "provider", "method", "methods", "version", "class", "kind", "group", "store", "manager"),
        *(
            "required",
            "optional",
            "algorithm",
            "alg",
            "format",
            "prefix",
            "suffix",
            "header",
            "server",
            "host",
            "hosts",
        ),
        *(
            "port",
            "endpoint",
            "region",
            "rotation",
            "schedule",
            "limit",
            "limits",
            "status",
            "owner",
            "by",
            "at",
            "from",
        ),
        *(
            "source",
            "template",
            "key",
            "id",
            "controller",
            "hash",
            "url",
            "domain",
            "realm",
            "scope",
            "scopes",
            "label",
        ),
        *(
            "requests",
            "stdin",
            "webhook",
            "proxy",
            "service",
            "sync",
            "refresh",
            "injection",
            "inject",
            "backend",
            "strategy",
        ),
    }
)
"""Last words that make a name say something *about* a secret: tokenTTL, secretName, AUTH_MODE, passwordPolicy."""

_PLAIN_LEAVES = frozenset(
    {
        *(
            "name",
            "namespace",
            "key",
            "kind",
            "apiversion",
            "apigroup",
            "optional",
            "path",
            "mode",
            "defaultmode",
            "type",
        ),
        *(
            "audience",
            "expirationseconds",
            "op",
            "operator",
            "effect",
            "secretname",
            "fieldpath",
            "items",
            "description",
        ),
        *("issuer", "provider", "engine", "version", "role", "server", "region", "host", "hosts", "storetype", "group"),
        *(
            "property",
            "remoteref",
            "creationpolicy",
            "deletionpolicy",
            "refreshinterval",
            "enabled",
            "driver",
            "readonly",
        ),
    }
)
"""Under a secretive key, what these hold is a reference or a setting, not the secret."""

_SPLIT = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PLAIN_VALUE = re.compile(
    r"(?i)(?:true|false|yes|no|on|off|none|null|nil|enabled|disabled|\d{1,6}(?:ms|[smhdkMG]i?)?"
    r"|v?\d{1,4}\.\d{1,4}\.\d{1,6}(?:-(?:rc|alpha|beta)?\.?\d{1,4})?|)\Z"
)
"""Also a version (https://semver.org/): a program called workload-credentials has images, whose tags are to be seen."""
_PATH = re.compile(r"\.{0,2}/[\w./@-]*\Z")
_WORD = re.compile(r"[a-z]{1,16}(?:[-.][a-z]{1,16}){0,3}\Z")


@lru_cache(maxsize=16384)
def _weight(key: str) -> int:
    """How secretive a key's name is: 0 not, 1 weak, 2 strong."""
    words = [word.lower() for word in _SPLIT.findall(key.rsplit("/", 1)[-1])]
    if not words:
        return 0
    pairs = set(pairwise(words))
    keyed = any(b in ("key", "keys") and a in _STRONG_KEYS for a, b in pairs) or bool(pairs & _PAIRS)
    if keyed and words[-1] not in _TAILS - {"key", "url"}:
        return 2
    tail = words[-1] in _TAILS and len(words) > 1
    if not tail and any(word in _STRONG for word in words):
        return 2
    if not tail and _STUCK.search("".join(words)):
        return 2
    return 1 if not tail and any(word in _WEAK for word in words) else 0


_STUCK = re.compile(
    r"(?:password|passwd|secretkey|apikey|accesskey|privatekey|authtoken|accesstoken|credentials?|requirepass|masterauth"
    r"|storepass|keypass)$"
)


_QUALIFIED = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}/[A-Za-z][A-Za-z0-9_.-]{0,62}\Z")
"""A label's key, as taints, tolerations and selectors hold it under ``key``: node.kubernetes.io/unreachable."""


def is_secretive(key: str, value: str) -> bool:
    """Whether a value that stands under this key is to be hidden whatever it looks like."""
    weight = _weight(key)
    if weight == 0 or _PLAIN_VALUE.match(value):
        return weight == 2 and value.isdigit()
    return weight == 2 or not (_PATH.match(value) or _WORD.match(value) or _QUALIFIED.match(value))


_DIGEST = re.compile(r"(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128})\Z")
_DIGEST_WORDS = frozenset({"checksum", "digest", "hash", "sha", "md", "revision", "commit"})


def is_digest(key: str, value: str) -> bool:
    """Whether this is the digest of something public: ``configHash``, Helm's ``checksum/secret``; no passwordHash."""
    if not _DIGEST.match(value):
        return False
    words = {word.lower() for word in _SPLIT.findall(key)}
    return key.startswith("checksum/") or (bool(words & _DIGEST_WORDS) and not words & (_STRONG | _WEAK))


@lru_cache(maxsize=16384)
def opens_secret(key: str) -> bool:
    """Whether what is nested under this key is secret unless its own key says otherwise (``credentials: {...}``)."""
    return _weight(key) == 2


def is_plain_leaf(key: str) -> bool:
    """Whether a key under a secretive one holds a reference or a setting."""
    return key.lower() in _PLAIN_LEAVES or key.lower().endswith(("ref", "name", "path", "seconds"))


_SECRET_FILE = re.compile(
    r"(?i)\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk)\Z|kubeconfig|(?:\A|/|\.)(?:env|npmrc|pypirc|netrc|pgpass|htpasswd"
    r"|dockerconfigjson|dockercfg|git-credentials|my\.cnf)\Z|\Aid_(?:rsa|dsa|ecdsa|ed25519)\Z"
)


def is_secret_file(name: str) -> bool:
    """Whether a ConfigMap's key names a file that is secret as a whole."""
    return _SECRET_FILE.search(name) is not None


_SECRET_KIND = re.compile(r"(?i:secret|credential|token)|Key|key\Z")
"""Capitals may be missing where a kind is guessed from a plural in a URL."""


def is_secret_kind(kind: str) -> bool:
    """Custom resources of which only the metadata is kept (SealedSecret, VaultToken, ApiKey ...)."""
    return _SECRET_KIND.search(kind) is not None


FREE = frozenset({"data", "stringData", "valueMap", "headers", "parameters"})
"""Maps whose keys are of one's own choice: under a secretive name, such a key says nothing of what it holds."""
_REFERRING = frozenset(
    {
        *(("external-secrets.io", kind) for kind in ("ExternalSecret", "SecretStore", "PushSecret")),
        *(("external-secrets.io", f"Cluster{kind}") for kind in ("ExternalSecret", "SecretStore", "PushSecret")),
        ("secrets-store.csi.x-k8s.io", "SecretProviderClass"),
        *(("secrets.hashicorp.com", f"Vault{sort}Secret") for sort in ("Static", "Dynamic", "PKI")),
    }
)


def only_refers(api_group: str, kind: str) -> bool:
    """Whether a custom resource that is called after secrets says where they are kept, and what for, and holds none as
    a rule: of these what refers is kept beside the metadata (https://external-secrets.io/latest/api/spec/ ,
    https://secrets-store-csi-driver.sigs.k8s.io/concepts ,
    https://developer.hashicorp.com/vault/docs/deploy/kubernetes/vso/api-reference)."""
    return (api_group, kind) in _REFERRING
