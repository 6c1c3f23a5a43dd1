"""https: what an API server sends its token over; files that cannot be used are told before anything starts."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import httpx2
import pytest

from app.store import embedded
from app.tls import Tls, TlsError
from tests.programs import found
from tests.serving import program
from tests.test_audit_webhook import body, postgres, token_for, wait_for

__all__ = ["postgres"]


def certificate(folder: Path, *, names: str = "IP:127.0.0.1") -> tuple[Path, Path]:
    """A certificate for these, which signs itself, and its key."""
    openssl = found("openssl", package="openssl")
    cert, key = folder / "tls.crt", folder / "tls.key"
    request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    about = ["-subj", "/CN=foreshock", "-addext", f"subjectAltName={names}"]
    subprocess.run([openssl, *request, *about, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def test_over_tls_it_takes_what_an_api_server_sends(postgres: embedded.Server, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    token = token_for(postgres.dsn, "shop")
    options = ("--port", "0", "--tls-cert", str(cert), "--tls-key", str(key))
    with program(postgres.dsn, tmp_path / "data", *options) as (_, address):
        assert address.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(cert))
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{address}/intake/audit/shop"
        answer = httpx2.post(url, content=body(0, 3), headers=headers, verify=trusted)
        assert answer.status_code == 200
        wait_for(postgres.dsn, (3, 3, 3, 0))


def test_files_that_cannot_be_used_are_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    cert, key = certificate(tmp_path)
    _, other = certificate(tmp_path / "other")
    Tls(cert, key).check()
    with pytest.raises(TlsError, match=r"--tls-cert .*missing.crt cannot be read: No such file or directory"):
        Tls(tmp_path / "missing.crt", key).check()
    with pytest.raises(TlsError, match=r"--tls-key .*other cannot be read: Is a directory"):
        Tls(cert, tmp_path / "other").check()
    with pytest.raises(TlsError, match="cannot be used together: key values mismatch"):
        Tls(cert, other).check()
    with pytest.raises(TlsError, match="both are PEM files"):
        Tls(key, cert).check()
    openssl = found("openssl", package="openssl")
    locked = tmp_path / "locked.key"
    lock: list[str | Path] = [openssl, "ec", "-in", key, "-out", locked, "-aes256", "-passout", "pass:hunter2"]
    subprocess.run(lock, check=True, capture_output=True)
    with pytest.raises(TlsError, match="has no password"):
        Tls(cert, locked).check()
