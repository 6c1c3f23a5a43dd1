"""The file of routes: the one that is shipped, mistakes told by their place, and the last good one that counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.routes import NO_ROUTES, Routes
from app.notify.routes_file import RoutesError, read
from app.written import Written

SHIPPED = Path(__file__).parents[2] / "deploy" / "routes.yaml"


def test_the_file_that_is_shipped_can_be_read() -> None:
    assert len(read(SHIPPED).routes) == 5


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("routes: [{channel: general}]", r"\$\.routes\[0\]\.channel"),
        ("routes: [{channel: C0123456789, quiet: {from: '20:00', to: '08:00', zone: Europe/Nowhere}}]", "Nowhere"),
        ("routes: [{channel: C0123456789, quiet: {from: 22:00, to: 08:00}}]", 'in quotes, like "22:00"'),
        ("routes: [{channel: '#ops'}]", "like C0123456789"),
        ("routes: [{channel: C0123456789, labels: {tier: 1}}]", "in quotes where"),
        ("", "the file is empty; routes: \\[\\] tells nobody"),
        ("routes: [{channel: C0123456789}]\nroutes: []", "a key stands here twice .line 2, column 1"),
        ("routes: [{channel: C0123456789, channel: C9876543210}]", "a key stands here twice .line 1"),
        ('routes: [{channel: "C0123456789\\n"}]', "like C0123456789"),
        ('routes: [{channel: C0123456789, quiet: {from: "22:00\\n", to: "08:00"}}]', 'in quotes, like "22:00"'),
        (
            "targets: {a: {kind: webhook, secret_file: /x, url: 'htp://hooks.example'}}",
            "http:// or https:// and a host",
        ),
        ("targets: {a: {kind: webhook, secret_file: /x, url: 'https://hooks.example:99999'}}", "and a host are needed"),
        ("targets: {a: {kind: email, from: a@b.c, host: h, to: [Ann <a@b.c>]}}", "without a name"),
        ("rules: []", "unknown field `rules`"),
        ("routes: [", "line 1"),
        ("- 1", "object"),
        ("\xff\xfe", "routes.yaml"),
    ],
)
def test_a_mistake_is_told_by_its_place(tmp_path: Path, written: str, says: str) -> None:
    file = tmp_path / "routes.yaml"
    file.write_bytes(written.encode("latin-1"))
    with pytest.raises(RoutesError, match=says) as error:
        read(file)
    assert str(file) in str(error.value)


def test_a_user_in_the_url_of_a_webhook_is_refused_and_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text("targets: {a: {kind: webhook, secret_file: /x, url: 'https://me:geheim@hooks.example'}}")
    with pytest.raises(RoutesError, match="and no user") as error:
        read(file)
    assert "geheim" not in str(error.value)


def test_it_is_read_again_when_it_is_written_and_the_last_good_one_counts(tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    routes = Written(file, read, without=NO_ROUTES)
    assert routes() == Routes()
    file.write_text("routes: [{channel: C0123456789}]")
    assert [one.channel for one in routes().routes] == ["C0123456789"]
    file.write_text("routes: [{channel: nowhere at all}]")
    assert [one.channel for one in routes().routes] == ["C0123456789"]
    assert "channel" in routes.error
    file.unlink()
    assert routes() == Routes()
    assert routes.error == ""


def test_one_that_is_named_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(RoutesError, match=r"missing\.yaml"):
        Written(tmp_path / "missing.yaml", read)
