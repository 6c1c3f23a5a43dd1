"""A write for a person, on a real API server: what may come between the dry run and the write."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx2
import pytest
import yaml

from app.collect.acting import ATTEMPTS, Undoing, acting
from app.collect.apiserver import ApiServer, RefusedError, UnreachableError
from app.core.access import Identity
from app.core.changes.revert_write import UndoError, Write
from app.core.model import Resource
from app.core.objects.redact import Redactor
from tests.cluster.control_plane import ControlPlane
from tests.cluster.test_undoing import MERGE

Json = dict[str, Any]
REDACTOR = Redactor(b"k" * 32)
WHO = Identity("admin", ("system:masters",))


class Map:
    """A ConfigMap whose "a" was 1 and is 2, and the write that undoes that."""

    def __init__(self, admin: httpx2.Client, namespace: str) -> None:
        self.admin, self.path = admin, f"/api/v1/namespaces/{namespace}/configmaps/acted-on"
        body = {"metadata": {"name": "acted-on"}, "data": {"a": "2"}}
        made = admin.post(self.path.removesuffix("/acted-on"), json=body)
        assert made.is_success, made.text
        uid = str(made.json()["metadata"]["uid"])
        resource = Resource("lab", "", "ConfigMap", namespace, "acted-on")
        self.write = Write("patch", resource, "v1", "configmaps", {"data": {"a": "1"}}, "merge", uid)
        self.writes = 0

    @property
    def data(self) -> Json:
        found: Json = self.admin.get(self.path).json()["data"]
        return found

    def annotate(self) -> None:
        """A write that alters none of what is undone, as a status is."""
        self.writes += 1
        self.set(metadata={"annotations": {"writes": str(self.writes)}})

    def set(self, **fields: Json) -> None:
        done = self.admin.patch(self.path, content=json.dumps(fields), headers=MERGE)
        assert done.is_success, done.text


@pytest.fixture
async def server(control_plane: ControlPlane) -> AsyncIterator[ApiServer]:
    async with acting(str(control_plane.kubeconfig()), None, WHO) as found:
        yield found


@pytest.fixture
def values(control_plane: ControlPlane, namespace: str) -> Any:
    with control_plane.client() as admin:
        yield Map(admin, namespace)


def interrupted(
    monkeypatch: pytest.MonkeyPatch, server: ApiServer, happens: Callable[[], None], *, before: str = "written"
) -> list[str]:
    """Something happens before each dry run ("tried"), or before each write; how each was sent."""
    sent, send = [], server.send

    async def between(*asked: Any, **more: Any) -> bytes:
        tried = "dryRun" in asked[2] or "dryRun" in asked[3]
        sent.append("tried" if tried else "written")
        if sent[-1] == before:
            happens()
        return await send(*asked, **more)

    monkeypatch.setattr(server, "send", between)
    return sent


async def test_what_was_written_in_between_is_met_by_another_dry_run(
    server: ApiServer, values: Map, monkeypatch: pytest.MonkeyPatch
) -> None:
    undoing = Undoing(server, values.write, REDACTOR, WHO)
    seen = (await undoing.attempt(None)).seen
    sent = interrupted(monkeypatch, server, lambda: values.annotate() if values.writes < 2 else None)
    assert (await undoing.attempt(seen)).seen == seen
    assert sent == ["tried", "written"] * 3
    assert values.data == {"a": "1"}


async def test_so_is_what_was_written_before_the_dry_run(
    server: ApiServer, values: Map, monkeypatch: pytest.MonkeyPatch
) -> None:
    undoing = Undoing(server, values.write, REDACTOR, WHO)
    sent = interrupted(monkeypatch, server, lambda: values.annotate() if values.writes < 2 else None, before="tried")
    assert (await undoing.attempt(None)).diffs
    assert sent == ["tried"] * 3


async def test_credentials_that_never_come_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(*_: Any) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr("app.collect.acting.CREDENTIALS_SECONDS", 0.1)
    monkeypatch.setattr(ApiServer, "of_kubeconfig", hangs)
    with pytest.raises(UndoError, match="takes too long"):
        async with acting("/etc/kubeconfig", None, WHO):
            pass


async def test_who_writes_all_the_time_is_not_overtaken_for_ever(
    server: ApiServer, values: Map, monkeypatch: pytest.MonkeyPatch
) -> None:
    undoing = Undoing(server, values.write, REDACTOR, WHO)
    seen = (await undoing.attempt(None)).seen
    sent = interrupted(monkeypatch, server, values.annotate)
    with pytest.raises(UndoError, match="5 times somebody wrote it in between: the API server refuses it"):
        await undoing.attempt(seen)
    assert sent == ["tried", "written"] * ATTEMPTS
    assert values.data == {"a": "2"}


async def test_the_same_field_written_in_between_is_not_overwritten(
    server: ApiServer, values: Map, monkeypatch: pytest.MonkeyPatch
) -> None:
    undoing = Undoing(server, values.write, REDACTOR, WHO)
    seen = (await undoing.attempt(None)).seen
    interrupted(monkeypatch, server, lambda: values.set(data={"a": "3"}))
    with pytest.raises(UndoError, match="it would do something else now"):
        await undoing.attempt(seen)
    assert values.data == {"a": "3"}


async def test_what_is_deleted_is_the_object_that_was_shown(
    server: ApiServer, values: Map, monkeypatch: pytest.MonkeyPatch
) -> None:
    undoing = Undoing(server, replace(values.write, verb="delete", body={}, patch=""), REDACTOR, WHO)
    seen = (await undoing.attempt(None)).seen
    interrupted(monkeypatch, server, lambda: values.set(data={"a": "3"}))
    with pytest.raises(UndoError, match="it would do something else now"):
        await undoing.attempt(seen)
    assert values.data == {"a": "3"}


async def test_another_object_of_the_same_name_is_left_alone(server: ApiServer, values: Map) -> None:
    undoing = Undoing(server, replace(values.write, uid="another"), REDACTOR, WHO)
    for seen in (None, "0" * 64):
        with pytest.raises(UndoError, match="another one of the same name"):
            await undoing.attempt(seen)
    assert values.data == {"a": "2"}


@pytest.mark.parametrize(
    "answer",
    [UnreachableError("it ended the connection without an answer"), RefusedError(504, "etcdserver: request timed out")],
)
async def test_no_answer_to_the_write_is_not_taken_for_a_refusal(
    server: ApiServer, values: Map, monkeypatch: pytest.MonkeyPatch, answer: Exception
) -> None:
    undoing = Undoing(server, values.write, REDACTOR, WHO)
    seen = (await undoing.attempt(None)).seen

    def lost() -> None:
        values.set(data={"a": "1"})  # it was done
        raise answer

    interrupted(monkeypatch, server, lost)
    with pytest.raises(UndoError, match="It may have been done or not") as failed:
        await undoing.attempt(seen)
    assert failed.value.unsure


@pytest.mark.parametrize(
    "said",
    [
        'spec.password: Invalid value: "geheim horse": must be longer',
        'data[password]: Unsupported value: "geheim \\"x\\" y": supported values: "a"',
        'spec.containers[0].env[3]: Invalid value: core.EnvVar{Name:"DB_PASSWORD", Value:"geheim"}: must be else',
        'spec.items: Duplicate value: {"password":"geheim"}',
    ],
)
async def test_a_refusal_repeats_no_value(
    server: ApiServer, values: Map, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    async def refuses(*_: Any, **__: Any) -> bytes:
        raise RefusedError(422, said)

    monkeypatch.setattr(server, "send", refuses)
    with pytest.raises(UndoError, match="value: <left out>") as refused:
        await Undoing(server, values.write, REDACTOR, WHO).attempt(None)
    assert "geheim" not in str(refused.value)
    assert str(refused.value).startswith(f"the API server refuses it (422): {said.partition(':')[0]}")


async def test_a_server_that_is_not_there_is_told(control_plane: ControlPlane, values: Map, tmp_path: Any) -> None:
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(control_plane.kubeconfig().read_text().replace(control_plane.url, "https://127.0.0.1:1"))
    async with acting(str(nowhere), None, WHO) as server:
        with pytest.raises(UndoError, match=r"did not answer: 127\.0\.0\.1:1 cannot be reached") as failed:
            await Undoing(server, values.write, REDACTOR, WHO).attempt(None)
    assert not failed.value.unsure


async def test_a_credential_that_is_refused_is_told_once(
    control_plane: ControlPlane, values: Map, tmp_path: Any
) -> None:
    path = tmp_path / "kubeconfig"
    found = yaml.safe_load(control_plane.kubeconfig().read_text())
    found["users"] = [{"name": one["name"], "user": {"token": "expired"}} for one in found["users"]]
    path.write_text(yaml.safe_dump(found))
    async with acting(str(path), None, WHO) as server:
        with pytest.raises(UndoError) as refused:
            await Undoing(server, values.write, REDACTOR, WHO).attempt(None)
    place = f"kubeconfig {path}, its current context"
    assert str(refused.value) == f"401 Unauthorized: the API server refuses the credential of {place}: renew it"


async def test_what_a_server_makes_up_of_a_new_object_is_no_difference(
    server: ApiServer, control_plane: ControlPlane, namespace: str
) -> None:
    """The address of a Service is another in each dry run."""
    spec: Any = {"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "selector": {"app": "web"}}
    whole: Json = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": namespace}}
    resource = Resource("lab", "", "Service", namespace, "web")
    undoing = Undoing(server, Write("create", resource, "v1", "services", {**whole, "spec": spec}), REDACTOR, WHO)
    seen = (await undoing.attempt(None)).seen
    assert (await undoing.attempt(seen)).seen == seen
    with control_plane.client() as admin:
        made = admin.get(f"/api/v1/namespaces/{namespace}/services/web").json()
    assert made["spec"]["selector"] == {"app": "web"}
    with pytest.raises(UndoError, match="already exists"):
        await undoing.attempt(seen)


def answers(
    monkeypatch: pytest.MonkeyPatch, server: ApiServer, alters: Callable[[Json], Json | str], *, dry_runs: bool
) -> None:
    """What the server answers to dry runs, or to writes, is altered."""
    send = type(server).send

    async def altered(*asked: Any, **more: Any) -> bytes:
        answer = await send(server, *asked, **more)
        return json.dumps(alters(json.loads(answer))).encode() if ("dryRun" in asked[2]) is dry_runs else answer

    monkeypatch.setattr(server, "send", altered)


@pytest.mark.parametrize("data", [{"a": "2"}, {"a": "1", "b": "3"}, {}])
async def test_a_new_object_is_shown_with_all_that_it_would_hold(
    server: ApiServer, control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch, data: Json
) -> None:
    """A webhook alters it by now, as it did not when it was shown."""
    resource = Resource("lab", "", "ConfigMap", namespace, "counted")
    body: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "counted"}, "data": {"a": "1"}}
    undoing = Undoing(server, Write("create", resource, "v1", "configmaps", body), REDACTOR, WHO)
    seen = (await undoing.attempt(None)).seen
    answers(monkeypatch, server, lambda answer: {**answer, "data": data}, dry_runs=True)
    with pytest.raises(UndoError, match="it would do something else now"):
        await undoing.attempt(seen)
    with control_plane.client() as admin:
        assert admin.get(f"/api/v1/namespaces/{namespace}/configmaps/counted").status_code == 404


async def test_what_the_write_did_is_told_and_not_what_its_dry_run_would_have(
    server: ApiServer, values: Map, monkeypatch: pytest.MonkeyPatch
) -> None:
    undoing = Undoing(server, values.write, REDACTOR, WHO)
    tried = await undoing.attempt(None)
    answers(monkeypatch, server, lambda answer: {**answer, "data": {"a": "1", "b": "a webhook's"}}, dry_runs=False)
    done = await undoing.attempt(tried.seen)
    assert [found.path_text for found in done.diffs] == ["data.a", "data.b"]
    assert done.seen != tried.seen


async def test_an_answer_that_is_no_object_leaves_it_open_whether_it_was_done(
    server: ApiServer, values: Map, monkeypatch: pytest.MonkeyPatch
) -> None:
    undoing = Undoing(server, values.write, REDACTOR, WHO)
    seen = (await undoing.attempt(None)).seen
    answers(monkeypatch, server, lambda _: "gateway", dry_runs=False)
    with pytest.raises(UndoError, match=r"no object\. It may have been done or not") as failed:
        await undoing.attempt(seen)
    assert failed.value.unsure
    assert values.data == {"a": "1"}


async def test_what_a_finalizer_keeps_is_told_to_stay(server: ApiServer, values: Map) -> None:
    values.set(metadata={"finalizers": ["example.com/held"]})
    undoing = Undoing(server, replace(values.write, verb="delete", body={}, patch=""), REDACTOR, WHO)
    tried = await undoing.attempt(None)
    assert tried.stays == "its finalizers are taken away: example.com/held"
    assert (await undoing.attempt(tried.seen)).stays == tried.stays
    assert values.data == {"a": "2"}
    values.set(metadata={"finalizers": None})


async def test_what_nothing_keeps_is_gone(server: ApiServer, values: Map) -> None:
    undoing = Undoing(server, replace(values.write, verb="delete", body={}, patch=""), REDACTOR, WHO)
    assert (await undoing.attempt((await undoing.attempt(None)).seen)).stays == ""
    assert values.admin.get(values.path).status_code == 404
