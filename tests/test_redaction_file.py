"""What is secret here is read where the program starts, kept beside the key, and in force for all who redact."""

from pathlib import Path

import pytest

from app.core.objects.own_rules import NO_RULES, OwnRules
from app.installation import postgres
from app.redaction_file import RedactionError, read, rules_of
from app.settings import Settings
from app.store.database import open_database
from app.store.redaction import read_redactor
from tests.test_cli import foreshock


async def in_force(dsn: str) -> OwnRules:
    database = open_database(dsn)
    async with database.write.begin() as conn:
        found = await read_redactor(conn)
    await database.close()
    return found.own


async def test_a_file_brings_them_none_leaves_them_and_an_empty_one_takes_them_back(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", dsn)
    here, elsewhere = Settings(data_dir=tmp_path), Settings(data_dir=tmp_path / "none")
    assert await in_force(dsn) == NO_RULES
    (tmp_path / "redaction.yaml").write_text("names: [iban, '*_pin']\nkinds: [vault.example.com/*]\n")
    for settings in (here, elsewhere):
        with postgres(settings):
            assert await in_force(dsn) == OwnRules(("iban", "*_pin"), ("vault.example.com/*",))
    (tmp_path / "redaction.yaml").write_text("# none any more\n")
    with postgres(here):
        assert await in_force(dsn) == NO_RULES


def test_one_that_is_named_has_to_be_there(tmp_path: Path) -> None:
    assert rules_of(Settings(data_dir=tmp_path)) is None
    with pytest.raises(RedactionError, match="No such file"):
        rules_of(Settings(redaction_file=tmp_path / "redaction.yaml"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("names: [name]", "names: 'name' would hide name, by which objects are known and compared"),
        ("kinds: ['*']", "kinds: '*' is neither group/Kind, group/* nor a Kind of the core group"),
        ("kind: [Widget]", "unknown field `kind`"),
        ("names: iban", "Expected `array`"),
        ("names: [", "no YAML"),
        ("names: [iban]\nkinds: []\nnames: [pin]", "a key stands here twice (line 3, column 1)"),
        ("- iban", "Expected `object`"),
    ],
)
def test_one_that_is_no_good_is_told_where_and_why(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "redaction.yaml"
    path.write_text(text)
    with pytest.raises(RedactionError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: ")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_nothing_is_started_with_one_that_is_no_good(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "redaction.yaml").write_text("names: ['*']")
    done = foreshock("migrate", DATABASE_URL=dsn, FORESHOCK_REDACTION_FILE=str(tmp_path / "redaction.yaml"))
    assert done.returncode == 2
    assert "would hide nearly everything" in done.stderr
