"""Tokens of ServiceAccounts as somebody got them long ago."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.lab.api import Json

ISSUER = "https://kubernetes.default.svc"
YEAR_SECONDS = 365 * 86400


def given(key: Path, namespace: str, account: str, uid: str, *, expires: float, pod: Json | None = None) -> str:
    """A token that is bound to nothing or to a ``pod``, was good for a year, and is over at ``expires`` (Unix seconds).

    ``key`` is the file with the key that signs them. The API server's own tokens are good for ten minutes at least.
    """
    bound = {"pod": {one: pod["metadata"][one] for one in ("name", "uid")}} if pod else {}
    claims = {
        "iss": ISSUER,
        "aud": [ISSUER],
        "sub": f"system:serviceaccount:{namespace}:{account}",
        "nbf": int(expires) - YEAR_SECONDS,
        "exp": int(expires),
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": account, "uid": uid}, **bound},
    }
    signed = ".".join(_base64(json.dumps(part).encode()) for part in ({"alg": "ES256", "typ": "JWT"}, claims))
    private = load_pem_private_key(key.read_bytes(), password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    numbers = decode_dss_signature(private.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{signed}.{_base64(b''.join(number.to_bytes(32) for number in numbers))}"


def _base64(part: bytes) -> str:
    """As the parts of a JWT are written."""
    return base64.urlsafe_b64encode(part).decode().rstrip("=")
