"""That a file of settings was written stands in the audit log."""

from __future__ import annotations

from pathlib import Path

from app.setting_files import Noted, files_of
from app.settings import Settings
from app.store import audit
from app.store.audit import Action, Wanted
from app.store.database import Database
from tests.web.conftest import NOW


async def noted(database: Database) -> list[str]:
    async with database.read.connect() as conn:
        found = await audit.read(conn, Wanted(action=Action.SETTINGS_READ.value), before=None, limit=10)
    return [one.about for one in found]


async def test_each_time_that_it_is_another_and_not_at_each_look_or_start(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    files = {"access_file": path, "routes_file": tmp_path / "routes.yaml"}
    looks = Noted(database.write, files)
    await looks.look(NOW)
    assert await noted(database) == [], "there never was one"
    path.write_text("groups: {sre: {role: admin}}")
    await looks.look(NOW)
    await looks.look(NOW)
    await Noted(database.write, files).look(NOW)
    (first,) = await noted(database)
    assert first.startswith("access_file: sha256 ")
    assert "sre" not in first
    path.write_text("groups: {sre: {role: viewer}}")
    await Noted(database.write, files).look(NOW)  # written while nobody ran
    path.unlink()
    await looks.look(NOW)
    gone, second, _ = await noted(database)
    assert second not in {first, gone}
    assert gone == "access_file: not there"


def test_the_files_are_those_that_are_read(tmp_path: Path) -> None:
    named = Settings(data_dir=tmp_path, access_file=tmp_path / "who.yaml", reverts_file=tmp_path / "r.yaml")
    assert files_of(named) == {
        "access_file": tmp_path / "who.yaml",
        "routes_file": tmp_path / "routes.yaml",
        "clusters_file": tmp_path / "clusters.yaml",
        "redaction_file": tmp_path / "redaction.yaml",
        "reverts_file": tmp_path / "r.yaml",
    }
    assert "reverts_file" not in files_of(Settings(data_dir=tmp_path))
