"""How a GET of REST is answered: as JSON, a list also as a table or a line for each item; with a tag."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any

import orjson
from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from app.core.screen import shown_tables, tables
from app.web import etags
from app.web.accept import JSON, NDJSON, TEXT, preferred
from app.web.problems import Problem

_FORMATS = {"json": JSON, "text": TEXT}


class Negotiated(APIRoute):
    """A route whose answer is what the client prefers of what there is of it. Raises Problem 406 where that is nothing.

    Its function answers a model, which is JSON. Of one with ``items`` there are lines, too, and a table where
    shown_tables.ALL has one. What else a function declares it makes itself, by ``kind_of``: of a list, its own
    ``text/plain`` comes first.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        super().__init__(path, endpoint, **more)
        self.own = tuple(kind for kind in self.responses.get(200, {}).get("content", {}) if kind != JSON)
        self.offered = _offered(self.response_model, self.own)
        also = {kind: {"schema": {"type": "string"}} for kind in self.offered if kind != JSON}
        self.responses = {**self.responses, 200: {**self.responses.get(200, {}), "content": also}}

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def handle(request: Request) -> Response:
            kind = self._kind(request)
            request.state.kind = kind
            response = await answer(request)
            if response.status_code != 200 or response.media_type not in (JSON, *self.own):
                return response
            return _represented(response, kind, request, of=self.response_model)

        return handle

    def _kind(self, request: Request) -> str:
        said = _FORMATS.get(request.query_params.get("format", "")) if TEXT in self.own else None
        return said or chosen(request, self.offered)


def kind_of(request: Request) -> str:
    """As what the client wants the answer of a negotiated route."""
    kind: str = request.state.kind
    return kind


def chosen(request: Request, offered: tuple[str, ...]) -> str:
    """What the client prefers of ``offered``. Raises Problem 406."""
    kind = preferred(", ".join(request.headers.getlist("accept")), offered)
    if kind is None:
        there_is = " or ".join(offered)
        raise Problem(406, f"Accept asks for none of what there is of this: {there_is}", "Accept")
    return kind


def _offered(model: Any, own: tuple[str, ...]) -> tuple[str, ...]:
    if "items" not in getattr(model, "model_fields", {}):
        return own if model is None else (JSON, *own)
    if TEXT in own:
        return (TEXT, JSON, NDJSON)
    return (JSON, TEXT, NDJSON) if model.__name__ in shown_tables.ALL else (JSON, NDJSON)


def _represented(response: Response, kind: str, request: Request, *, of: Any) -> Response:
    """The answer as ``kind``, tagged; 304 where the client has it."""
    body, version = bytes(response.body), ""
    if response.media_type != JSON:
        made_of = etags.basis_of_text(body)
    else:
        answer = orjson.loads(body)
        made_of, version = etags.basis(answer), etags.version(answer)
        if kind == TEXT:
            response = Response(tables.as_text(answer, shown_tables.ALL[of.__name__]), media_type=TEXT)
        elif kind == NDJSON:
            response = Response(as_lines(answer), media_type=NDJSON)
    tag = etags.tag(kind, made_of, version)
    if etags.met(", ".join(request.headers.getlist("if-none-match")), tag):
        response = Response(status_code=304)
    response.headers["etag"] = tag
    response.headers.add_vary_header("Accept")
    return response


def as_lines(answer: Mapping[str, Any]) -> str:
    """An item a line, and in the last line the rest of the answer: how fresh it is, what was not seen."""
    return "".join(f"{orjson.dumps(line).decode()}\n" for line in _lines(answer))


def _lines(answer: Mapping[str, Any]) -> Iterator[Any]:
    yield from answer["items"]
    yield {name: value for name, value in answer.items() if name != "items"}
