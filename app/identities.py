"""Who people are where somebody else says so: the settings of it, and the file that says what they may do."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path

import msgspec
import structlog
import yaml

from app.core.access import NO_ACCESS, Access, Proxy
from app.failures import Expected
from app.settings import Settings

log = structlog.get_logger()


class AccessError(Expected):
    """The file of access cannot be used; the message says where and why."""


def read(path: Path) -> Access:
    """The grants of a file. Raises AccessError."""
    try:
        return msgspec.convert(yaml.safe_load(path.read_bytes()), Access)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise AccessError(f"{path}: {error}") from None


class AccessFile:
    """The grants as they are written now. Where a newer file is no good, or gone, those before it stay."""

    def __init__(self, path: Path) -> None:
        """Raises AccessError."""
        self._path = path
        self._written = self._when()
        self._access = read(path)

    def __call__(self) -> Access:
        """Reads the file where it was written since."""
        written = self._when()
        if written != self._written:
            self._written = written
            try:
                self._access = read(self._path)
                log.info("access read", groups=len(self._access.groups), users=len(self._access.users))
            except AccessError as error:
                log.error("access stays as it was", why=str(error))  # noqa: TRY400 - it says all
        return self._access

    def _when(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def access_of(settings: Settings) -> Callable[[], Access]:
    """Who may do what: nobody, where nobody else says who people are. Raises AccessError."""
    if settings.proxy_user_header is None and settings.oidc_issuer is None:
        return lambda: NO_ACCESS
    return AccessFile(settings.access_file or settings.data_dir / "access.yaml")


def proxy_of(settings: Settings) -> Proxy | None:
    """Whose word counts of who people are; None: no proxy's."""
    if settings.proxy_user_header is None:
        return None
    return Proxy(
        settings.proxy_user_header,
        settings.proxy_groups_header,
        tuple(ip_network(one) for one in (settings.trusted_proxies or "").split()),
    )
