"""Who people are where somebody else says so: the settings of it, and the file that says what they may do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import yaml

from app import networks
from app.core.access import NO_ACCESS, Access, Proxy
from app.failures import Expected, told
from app.settings import Settings, SettingsError
from app.written import Written
from app.yaml_file import read_yaml


class AccessError(Expected):
    """The file of access cannot be used; the message says where and why."""


def read(path: Path) -> Access:
    """The grants of a file. Raises AccessError."""
    try:
        return msgspec.convert(read_yaml(path), Access)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise AccessError(f"{path}: {told(error)}") from None


def access_of(settings: Settings) -> Callable[[], Access]:
    """Who may do what: nobody, where nobody else says who people are. Raises AccessError."""
    if settings.proxy_user_header is None and settings.oidc_issuer is None:
        return lambda: NO_ACCESS
    return Written(settings.access_file or settings.data_dir / "access.yaml", read)


def proxy_of(settings: Settings) -> Proxy | None:
    """Whose word counts of who people are; None: no proxy's."""
    if settings.proxy_user_header is None:
        return None
    return Proxy(
        settings.proxy_user_header,
        settings.proxy_groups_header,
        tuple(networks.network(one) for one in (settings.trusted_proxies or "").split()),
    )


def forwarders(written: str) -> list[str]:
    """Whose word counts of where a request comes from, as FORWARDED_ALLOW_IPS names them. Raises SettingsError."""
    try:
        return networks.forwarders(written)
    except ValueError as error:
        raise SettingsError(f"FORWARDED_ALLOW_IPS (environment): {error}") from None
