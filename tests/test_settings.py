"""Settings: every mistake at once, no secret repeated, defaults by who runs it."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from app import settings
from app.client.environment import VARIABLES
from app.settings import SettingsError, load

POSTGRES_URL = "a URL like postgresql://user:password@host:5432/database (PostgreSQL 15 to 18)"
TOO_LONG = "https://foreshock.example/base?x=1"


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(settings.PREFIX) or name == "DATABASE_URL":
            monkeypatch.delenv(name)


def test_nothing_need_be_set() -> None:
    found = load()
    assert found.database_url is None
    assert found.data_dir == settings.default_data_dir()


def test_a_kubeconfig_at_the_home_of_nobody_is_one_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "~nobody-of-that-name/x:~/y")
    nobodys, ours = load().kubeconfigs()
    assert (nobodys, ours) == (Path("~nobody-of-that-name/x"), Path.home() / "y")
    assert not nobodys.exists()


def test_what_is_set_for_who_asks_is_known_and_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "anything")
    load()
    monkeypatch.setenv("FORESHOCK_ULR", "https://foreshock.example")
    with pytest.raises(
        SettingsError, match=r"FORESHOCK_ULR \(environment\) is not a setting: did you mean FORESHOCK_URL"
    ):
        load()


def test_all_mistakes_are_told_at_once_and_secrets_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "DATABASE_URL": "mysql://root:hunter2@db/foreshock",
        "FORESHOCK_DATADIR": "/srv",
        "FORESHOCK_DATA_DIR": "srv/foreshock",
        "FORESHOCK_LOG_LEVEL": "loud",
        "FORESHOCK_CALLS_RETENTION_DAYS": "0",
        "FORESHOCK_PUBLIC_URL": TOO_LONG,
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as raised:
        load()
    told = str(raised.value)
    assert told.splitlines() == [
        "FORESHOCK_DATADIR (environment) is not a setting: did you mean FORESHOCK_DATA_DIR?",
        f"DATABASE_URL (environment) is ********; allowed: {POSTGRES_URL}",
        "FORESHOCK_DATA_DIR (environment) is 'srv/foreshock'; allowed: an absolute path, under 80 characters",
        f"FORESHOCK_PUBLIC_URL (environment) is {TOO_LONG!r}; allowed: http:// or https://, a host, no path or query",
        "FORESHOCK_LOG_LEVEL (environment) is 'loud'; allowed: one of debug, info, warning, error",
        "FORESHOCK_CALLS_RETENTION_DAYS (environment) is '0'; allowed: a whole number of days, 1 to 4000",
    ]
    assert "hunter2" not in told


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p@db:5432/foreshock",
        "postgres://u@db/foreshock?sslmode=verify-full",
        "postgresql:///foreshock?host=/run/postgresql",
        "postgresql+psycopg://u@db/foreshock",
    ],
)
def test_the_ways_people_write_a_database_url(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    found = load()
    assert found.database_url is not None
    assert found.database_url.get_secret_value() == url
    assert "p@db" not in repr(found)


def test_an_empty_variable_is_one_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "")
    monkeypatch.setenv("FORESHOCK_LOG_LEVEL", "")
    assert load() == settings.Settings()


def test_settings_do_not_change_after_they_are_read() -> None:
    with pytest.raises(ValidationError):
        load().log_level = "debug"  # type: ignore[misc] # what the types forbid is refused at run time too


def test_root_has_a_system_folder_and_a_user_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert settings.default_data_dir() == Path("/var/lib/foreshock")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", "/home/alice/data")
    assert settings.default_data_dir() == Path("/home/alice/data/foreshock")
    monkeypatch.setenv("XDG_DATA_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", "/home/alice")
    assert settings.default_data_dir() == Path("/home/alice/.local/share/foreshock")
    monkeypatch.setattr("sys.platform", "darwin")
    assert settings.default_data_dir() == Path("/home/alice/Library/Application Support/foreshock")


@pytest.mark.parametrize("name", ["FORESHOCK_PUBLIC_URL", "FORESHOCK_ARGOCD_URL", "FORESHOCK_OIDC_ISSUER"])
def test_a_password_in_a_url_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "https://root:hunter@2@shop.example")
    with pytest.raises(SettingsError, match=r"is 'https://\*{8}@shop\.example'; allowed") as raised:
        load()
    assert "hunter" not in str(raised.value)


def test_the_line_end_of_a_file_is_no_part_of_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORESHOCK_SLACK_SIGNING_SECRET", f"{'a' * 32}\n")
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:p@db/foreshock\r\n")
    found = load()
    assert found.slack_signing_secret is not None
    assert found.slack_signing_secret.get_secret_value() == "a" * 32
    assert found.database_url is not None
    assert found.database_url.get_secret_value() == "postgresql://u:p@db/foreshock"


def test_blanks_are_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORESHOCK_SLACK_SIGNING_SECRET", " " * 32)
    monkeypatch.setenv("FORESHOCK_LAUNCHDARKLY_SECRET", f"{'a' * 8}{' ' * 8}")
    with pytest.raises(SettingsError) as raised:
        load()
    assert [line.split()[0] for line in str(raised.value).splitlines()] == [
        "FORESHOCK_LAUNCHDARKLY_SECRET",
        "FORESHOCK_SLACK_SIGNING_SECRET",
    ]


@pytest.mark.parametrize("name", ["foreshock_log_level", "Foreshock_Log_Level", "database_url"])
def test_a_name_in_small_letters_is_not_read_unseen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "postgresql://u:hunter2@db/other" if "url" in name else "debug")
    with pytest.raises(SettingsError, match=rf"{name} \(environment\) is not a setting: did you mean {name.upper()}"):
        load()


SLACK = {"FORESHOCK_SLACK_TOKEN": "xoxb-1234567890-abc", "FORESHOCK_SLACK_CHANNEL": "C0123456789"}


@pytest.mark.parametrize(
    ("changed", "variable"),
    [
        ({"FORESHOCK_SLACK_TOKEN": ""}, "FORESHOCK_SLACK_CHANNEL"),
        ({"FORESHOCK_SLACK_CHANNEL": ""}, "FORESHOCK_SLACK_CHANNEL"),
        ({"FORESHOCK_SLACK_CHANNEL": "#incidents"}, "FORESHOCK_SLACK_CHANNEL"),
        ({"FORESHOCK_SLACK_TOKEN": "xoxp-of-a-person"}, "FORESHOCK_SLACK_TOKEN"),
        ({"FORESHOCK_SLACK_APP_TOKEN": "xoxb-1234567890-abc"}, "FORESHOCK_SLACK_APP_TOKEN"),
        ({"FORESHOCK_SLACK_SIGNING_SECRET": "short"}, "FORESHOCK_SLACK_SIGNING_SECRET"),
        ({"FORESHOCK_SLACK_API": "slack.com"}, "FORESHOCK_SLACK_API"),
    ],
)
def test_slack_takes_a_token_and_a_channel_of_the_right_kind(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], variable: str
) -> None:
    for name, value in SLACK.items():
        monkeypatch.setenv(name, value)
    assert load().slack_channel == "C0123456789"
    for name, value in changed.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as wrong:
        load()
    assert variable in str(wrong.value)
    assert "allowed: " in str(wrong.value)
    assert "xox" not in str(wrong.value).replace("xoxb-", ""), "no token is repeated"
