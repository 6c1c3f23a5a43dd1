"""What the documentation promises to list, it lists; and nothing that is gone."""

import re
from pathlib import Path

import typer.main
from typer.core import TyperGroup

from app.__main__ import NOT_NOW, WRONG_USE, cli
from app.settings import variables

ROOT = Path(__file__).parents[1]
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()


def commands() -> set[str]:
    group = typer.main.get_command(cli)
    assert isinstance(group, TyperGroup)
    found = set()
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            found |= {f"{name} {inner}" for inner in command.commands}
        else:
            found.add(name)
    return found


def test_every_setting_is_documented_with_its_default_and_allowed_form() -> None:
    rows = {
        cells[0]: cells[1:]
        for line in CONFIGURATION.splitlines()
        if (cells := [cell.strip().strip("`") for cell in line.strip("|").split("|")])[0] in variables()
    }
    for name, field in variables().items():
        default, allowed, told = rows[name]
        assert allowed == field.description
        assert len(told) > 20
        if isinstance(field.default, (int, str)):
            assert default == str(field.default)


def test_no_setting_is_documented_that_does_not_exist() -> None:
    assert set(re.findall(r"FORESHOCK_[A-Z_]*[A-Z]", CONFIGURATION)) <= set(variables())


def test_every_command_is_documented_and_nothing_else() -> None:
    documented = re.findall(r"^\| `foreshock ((?:token )?[a-z-]+)", CONFIGURATION, re.MULTILINE)
    assert sorted(documented) == sorted(commands())


def test_every_exit_code_is_documented() -> None:
    section = CONFIGURATION.split("## Exit codes")[1]
    assert {int(code) for code in re.findall(r"^\| (\d+) ", section, re.MULTILINE)} == {0, 1, WRONG_USE, NOT_NOW, 130}


def test_every_link_between_documents_leads_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if not target.startswith(("http://", "https://")):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
