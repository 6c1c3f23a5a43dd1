"""Every knob of Foreshock in one frozen class: the only reader of the environment, but for what clients are told there
(client/environment.py).

docs/configuration.md says the same for people; a test holds the two together.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AnyHttpUrl, Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.client.environment import VARIABLES as OF_CLIENTS
from app.failures import Expected
from app.home import at_home
from app.networks import network

PREFIX = "FORESHOCK_"
LogLevel = Literal["debug", "info", "warning", "error"]
_POSTGRES = ("postgresql://", "postgres://", "postgresql+psycopg://")
_SECRET = {
    "DATABASE_URL",
    "FORESHOCK_LAUNCHDARKLY_SECRET",
    "FORESHOCK_OIDC_CLIENT_SECRET",
    "FORESHOCK_PAGERDUTY_SECRETS",
    "FORESHOCK_SLACK_TOKEN",
    "FORESHOCK_SLACK_APP_TOKEN",
    "FORESHOCK_SLACK_SIGNING_SECRET",
}  # their values are never repeated
_USER = re.compile(r"(?<=//)[^/]*@")
"""Who a URL asks as, and their password, which are not repeated either."""


class SettingsError(Expected):
    """The settings cannot be used. The message has one line a mistake: variable, value, allowed form."""


def default_data_dir() -> Path:
    """Where our own PostgreSQL lives: /var/lib/foreshock for root, else the user's data folder."""
    if os.geteuid() == 0:
        return Path("/var/lib/foreshock")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "foreshock"
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "share") / "foreshock"


class Settings(BaseSettings):
    """Read from environment variables with the prefix FORESHOCK_, and DATABASE_URL. Empty counts as not set."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        str_strip_whitespace=True,  # what is made of a file has a line's end, of which a secret holds none
    )

    database_url: SecretStr | None = Field(
        None,
        validation_alias="DATABASE_URL",
        description="a URL like postgresql://user:password@host:5432/database (PostgreSQL 15 to 18)",
    )
    data_dir: Path = Field(default_factory=default_data_dir, description="an absolute path, under 80 characters")
    public_url: AnyHttpUrl | None = Field(None, description="http:// or https://, a host, no path or query")
    log_level: LogLevel = Field("info", description="one of " + ", ".join(get_args(LogLevel)))
    changes_retention_days: int = Field(90, ge=1, le=4000, description="a whole number of days, 1 to 4000")
    calls_retention_days: int = Field(30, ge=1, le=4000, description="a whole number of days, 1 to 4000")
    samples_retention_days: int = Field(7, ge=1, le=4000, description="a whole number of days, 1 to 4000")
    samples_minutes_retention_days: int = Field(35, ge=1, le=4000, description="a whole number of days, 1 to 4000")
    samples_hours_retention_days: int = Field(400, ge=1, le=4000, description="a whole number of days, 1 to 4000")
    series_per_cluster: int = Field(200_000, ge=1, description="a whole number, at least 1")
    requests_retention_days: int = Field(14, ge=1, le=4000, description="a whole number of days, 1 to 4000")

    clusters_file: Path | None = Field(None, description="an absolute path")
    kubeconfig: str | None = Field(None, validation_alias="KUBECONFIG", description="paths with a colon between two")
    spool_bytes: int = Field(2 << 30, ge=1_000_000, description="a whole number of bytes, at least 1000000")

    launchdarkly_secret: SecretStr | None = Field(None, min_length=16, description="at least 16 characters")

    pagerduty_secrets: SecretStr | None = Field(
        None, description="at least 16 characters each, with a space between two"
    )

    slack_token: SecretStr | None = Field(None, description="a bot token: it begins with xoxb-")
    slack_channel: str | None = Field(
        None,
        validate_default=True,
        description="a channel's ID like C0123456789, together with FORESHOCK_SLACK_TOKEN",
    )
    routes_file: Path | None = Field(None, description="an absolute path")
    slack_app_token: SecretStr | None = Field(None, description="an app-level token: it begins with xapp-")
    slack_signing_secret: SecretStr | None = Field(None, min_length=16, description="at least 16 characters")
    slack_suspected: bool = Field(False, description="true or false")
    slack_api: AnyHttpUrl = Field(AnyHttpUrl("https://slack.com/api/"), description="http:// or https://, and a host")

    argocd_url: AnyHttpUrl | None = Field(None, description="http:// or https://, and a host, no query")
    backstage_url: AnyHttpUrl | None = Field(None, description="http:// or https://, and a host, no query")

    redaction_file: Path | None = Field(None, description="an absolute path")
    access_file: Path | None = Field(None, description="an absolute path")
    reverts_file: Path | None = Field(None, description="an absolute path")
    proxy_user_header: str | None = Field(
        None, pattern="^[A-Za-z][A-Za-z0-9-]{0,63}$", description="a header's name, like X-Forwarded-Email"
    )
    proxy_groups_header: str | None = Field(
        None,
        pattern="^[A-Za-z][A-Za-z0-9-]{0,63}$",
        description="a header's name, like X-Forwarded-Groups, together with FORESHOCK_PROXY_USER_HEADER",
    )
    trusted_proxies: str | None = Field(
        None,
        validate_default=True,
        description="networks like 10.0.3.0/24, with a space between two, together with FORESHOCK_PROXY_USER_HEADER",
    )

    oidc_issuer: str | None = Field(
        None,
        pattern=r"^https?://[^\s?#@]+$",
        max_length=500,
        description="https:// and a host, as the provider says it",
    )
    oidc_client_id: str | None = Field(
        None,
        validate_default=True,
        max_length=500,
        description="as the provider gave it, together with FORESHOCK_OIDC_ISSUER",
    )
    oidc_client_secret: SecretStr | None = Field(
        None, validate_default=True, description="as the provider gave it, together with FORESHOCK_OIDC_ISSUER"
    )
    oidc_scopes: str = Field(
        "openid email profile", pattern="^openid( [!-~]+)*$", description="openid, and others with a space between two"
    )
    oidc_groups_claim: str = Field("groups", min_length=1, max_length=200, description="the name of a claim")
    oidc_ca_file: Path | None = Field(None, description="an absolute path")

    @field_validator("oidc_issuer")
    @classmethod
    def _over_tls(cls, value: str | None) -> str | None:
        url = urlsplit(value or "")
        if url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise ValueError("not over TLS")
        return value

    @field_validator("oidc_client_id", "oidc_client_secret")
    @classmethod
    def _with_issuer(cls, value: Any, info: ValidationInfo) -> Any:
        if (value is not None) != (info.data.get("oidc_issuer") is not None):
            raise ValueError("one without the other")
        return value

    @field_validator("proxy_groups_header")
    @classmethod
    def _with_user(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("proxy_user_header") is None:
            raise ValueError("groups of nobody")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: str | None, info: ValidationInfo) -> str | None:
        if (value is not None) != (info.data.get("proxy_user_header") is not None):
            raise ValueError("one without the other")
        if value is not None and any(network(one).prefixlen == 0 for one in value.split() or ["0.0.0.0/0"]):
            raise ValueError("everybody")
        return value

    @field_validator("slack_token", "slack_app_token")
    @classmethod
    def _slack(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        begins = {"slack_token": "xoxb-", "slack_app_token": "xapp-"}[info.field_name or ""]
        if value is not None and not value.get_secret_value().startswith(begins):
            raise ValueError("another kind of token")
        return value

    @field_validator("slack_channel")
    @classmethod
    def _channel(cls, value: str | None, info: ValidationInfo) -> str | None:
        is_sent = info.data.get("slack_token") is not None
        if is_sent != (value is not None) or (value and not re.fullmatch("[CG][A-Z0-9]{6,20}", value)):
            raise ValueError("no channel's ID, or one without the other")
        return value

    @field_validator("pagerduty_secrets")
    @classmethod
    def _long(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and any(len(one) < 16 for one in value.get_secret_value().split() or [""]):
            raise ValueError("too short")
        return value

    @field_validator("database_url")
    @classmethod
    def _postgres(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().startswith(_POSTGRES):
            raise ValueError("not PostgreSQL")
        return value

    @field_validator(
        "data_dir", "clusters_file", "routes_file", "redaction_file", "access_file", "reverts_file", "oidc_ca_file"
    )
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError("not an absolute path")
        return value

    @field_validator("public_url")
    @classmethod
    def _bare(cls, value: AnyHttpUrl | None) -> AnyHttpUrl | None:
        if value is not None and (value.path not in {None, "/"} or value.query or value.fragment or value.username):
            raise ValueError("more than a scheme and a host")
        return value

    @field_validator("argocd_url", "backstage_url")
    @classmethod
    def _without_query(cls, value: AnyHttpUrl | None) -> AnyHttpUrl | None:
        if value is not None and (value.query or value.fragment or value.username):
            raise ValueError("more than a scheme, a host and a path")
        return value

    def kubeconfigs(self) -> list[Path]:
        """The files that kubectl reads."""
        named = [at_home(part) for part in (self.kubeconfig or "").split(":") if part]
        return named or [Path.home() / ".kube" / "config"]


def variable(name: str, field: FieldInfo) -> str:
    """The environment variable of a field."""
    return str(field.validation_alias) if field.validation_alias else PREFIX + name.upper()


def variables() -> dict[str, FieldInfo]:
    """Every environment variable that is read, with its field."""
    return {variable(name, field): field for name, field in Settings.model_fields.items()}


def load() -> Settings:
    """The settings of this process. Raises SettingsError with every mistake at once."""
    mistakes = list(_unknown(os.environ))
    try:
        settings = Settings()
    except ValidationError as error:
        raise SettingsError("\n".join([*mistakes, *_wrong(error, os.environ)])) from None
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    return settings


def _unknown(environment: Mapping[str, str]) -> Iterator[str]:
    known = [*variables(), *OF_CLIENTS]
    for name in sorted(environment):
        if name not in known and (name.upper().startswith(PREFIX) or name.upper() in known):
            close = get_close_matches(name.upper(), known, n=1)
            yield f"{name} (environment) is not a setting" + (f": did you mean {close[0]}?" if close else "")


def _wrong(error: ValidationError, environment: Mapping[str, str]) -> Iterator[str]:
    known: dict[str, Any] = variables()
    for name in dict.fromkeys(_variable_of(mistake["loc"][0]) for mistake in error.errors()):
        value = "********" if name in _SECRET else repr(_USER.sub("********@", environment.get(name, "")))[:100]
        yield f"{name} (environment) is {value}; allowed: {known[name].description}"


def _variable_of(place: int | str) -> str:
    return str(place) if place in _SECRET else PREFIX + str(place).upper()
