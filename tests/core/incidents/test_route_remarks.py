"""What is remarked of a route that is taken, and would only be silent."""

from __future__ import annotations

import pytest

from app.core.incidents.route_remarks import remarks
from app.core.routes import Route, What

CHANNEL, KNOWN = "C0123456789", ("prod-a", "prod-b")
INCIDENTS = (What.INCIDENTS,)


@pytest.mark.parametrize(
    ("route", "says"),
    [
        (Route(CHANNEL, kinds=("ConfigMap",)), "of ConfigMap only releases of Helm are told"),
        (Route(CHANNEL, kinds=("secrets",)), "of Secret only releases of Helm are told"),
        (Route(CHANNEL, kinds=("jobs",)), "changes of Job are on the timeline alone"),
        (Route(CHANNEL, kinds=("Deploymnt",)), "no kind is called Deploymnt: is Deployment meant?"),
        (Route(CHANNEL, kinds=("deploymnts",)), "is Deployment meant?"),
        (
            Route(CHANNEL, kinds=("hpa",)),
            "hpa is HorizontalPodAutoscaler, and changes of HorizontalPodAutoscaler are on",
        ),
        (Route(CHANNEL, kinds=("svc",)), "a kind is named in full: svc is Service, and changes of Service are on the"),
        (Route(CHANNEL, kinds=("cm",)), "cm is ConfigMap, and of ConfigMap only releases of Helm are told"),
        (Route(CHANNEL, kinds=("Deploy",)), "a kind is named in full: Deploy is Deployment"),
        (Route(CHANNEL, kinds=("no",)), "a kind is named in full: no is Node"),
        (Route(CHANNEL, kinds=("Widget",)), "no kind of Kubernetes' own that is told is called Widget"),
        (Route(CHANNEL, kinds=("Node",), tell=INCIDENTS), "kinds are asked of changes alone"),
        (Route(CHANNEL, clusters=("nosuch",)), "nothing is recorded yet of a cluster nosuch; known are prod-a, prod-b"),
        (Route(CHANNEL, clusters=("prod-a", "stage-*")), "nothing is recorded yet of a cluster stage-*"),
        (Route(CHANNEL, severities=("critcal",), tell=INCIDENTS), "is critical meant?"),
        (Route(CHANNEL, severities=("Warnin",), tell=INCIDENTS), "is warning meant?"),
        (Route(CHANNEL, severities=("critical",)), "severities are asked of incidents alone"),
    ],
)
def test_a_route_that_would_be_silent_says_so(route: Route, says: str) -> None:
    (said,) = remarks(route, KNOWN)
    assert says in said


@pytest.mark.parametrize(
    "route",
    [
        Route(CHANNEL),
        Route(CHANNEL, kinds=("Deployment", "statefulsets", "daemonset", "Network*", "*")),
        Route(CHANNEL, kinds=("terraform_apply", "feature_flag")),  # what others tell of has such kinds
        Route(CHANNEL, clusters=("prod-*", "*", "prod-b")),
        Route(CHANNEL, severities=("critical", "PAGE", "warn", "P1", "sev-2", "*"), tell=INCIDENTS),
    ],
)
def test_of_others_nothing_is_remarked(route: Route) -> None:
    assert remarks(route, KNOWN) == []


def test_before_anything_is_recorded_no_cluster_is_missed() -> None:
    assert remarks(Route(CHANNEL, clusters=("prod-*",)), ()) == []
