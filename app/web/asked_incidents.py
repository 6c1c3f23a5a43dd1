"""What a person or a program says of an incident: how it must be, in words, and as a JSON schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import msgspec
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from app.core.clusters import LONGEST, cluster_name
from app.core.findings import Said
from app.web import params
from app.web.telling import LABEL, like, line, written

MOST = 100
"""More names than these are the whole cluster."""
NAME = rf"(?=.{{1,253}}$){LABEL}(?:\.{LABEL})*"
"""What an object may be called: RFC 1123, as Kubernetes has it."""


def _named(pattern: str, words: str, description: str, example: str) -> Any:
    one = like(pattern, words)
    return Annotated[list[one] | None, Field(max_length=MOST, description=description, examples=[[example]])]  # type: ignore[valid-type]


class SaidOfIncident(BaseModel):
    """What may be said of every incident; null is not said."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: Annotated[
        Annotated[str, Field(min_length=1, max_length=200), AfterValidator(line)] | None,
        Field(description="what it is, in a line", examples=["Checkout answers with errors"]),
    ] = None
    severity: Annotated[
        Literal["page", "critical", "error", "warning", "info"] | None,
        Field(description="of an alert's label, the words that people choose from"),
    ] = None
    started_at: Annotated[
        Annotated[params.Time, BeforeValidator(written)] | None,
        Field(description="since when, as ISO 8601 with a zone"),
    ] = None
    namespaces: _named(  # type: ignore[valid-type]
        LABEL, "must be the name of a namespace", "the namespaces that it is about", "payments"
    ) = None
    workloads: _named(  # type: ignore[valid-type]
        rf"{LABEL}/{NAME}", "must be namespace/name", "the workloads that it is about", "payments/checkout-api"
    ) = None
    nodes: _named(NAME, "must be the name of a node", "the nodes that it is about", "node-7") = None  # type: ignore[valid-type]
    control_plane: Annotated[bool | None, Field(description="whether it is about the control plane")] = None

    def said(self) -> Said:
        """The same as core has it."""
        return msgspec.convert(self.model_dump(exclude_none=True, exclude={"cluster"}), Said)

    def all_namespaces(self) -> list[str]:
        """Those that it names, also as those of workloads, once each."""
        of_workloads = (one.split("/")[0] for one in self.workloads or ())
        return list(dict.fromkeys([*(self.namespaces or ()), *of_workloads]))


class IncidentToOpen(SaidOfIncident):
    """An incident that somebody opens."""

    cluster: Annotated[
        str, Field(max_length=LONGEST, description="its cluster", examples=["shop"]), AfterValidator(cluster_name)
    ]
    title: Annotated[
        str,
        Field(min_length=1, max_length=200, description="what it is, in a line", examples=["Checkout is down"]),
        AfterValidator(line),
    ]


class IncidentToChange(SaidOfIncident):
    """What changes of an incident: what is not named stays."""

    status: Annotated[
        Literal["open", "resolved"] | None, Field(description="resolved, or open again until it is resolved by hand")
    ] = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise ValueError("names nothing that is to change")
        return self


class IncidentToMerge(BaseModel):
    """What an incident becomes a part of."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    into: like(  # type: ignore[valid-type]
        "[0-9a-f]{12}",
        "must be the id of an incident, as 5f0a1c22d3e4",
        description="the id of the other incident",
        examples=["5f0a1c22d3e4"],
    )
