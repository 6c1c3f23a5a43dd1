"""A scrape gives what Prometheus would keep of it: its labels, its end when a series is told no longer, and up."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

import msgspec
import pytest
from aiohttp import web

from app.collect import scrape
from app.collect.outbound import OutboundError
from app.collect.scrape import Kept, Scraped, Target, UnreadableError, fetch, read
from app.core.model import MetricSeries
from app.core.objects.redact import Redactor
from app.core.stale import STALE
from tests.collect.test_importer import T0
from tests.collect.test_outbound import answering
from tests.stale import is_stale

NAMES = frozenset({"workqueue_depth", "workqueue_adds_total", "rest_seconds", "rest_seconds_sum", "rest_seconds_count"})
KEPT = Kept(NAMES)
LABELS = {"job": "kube-scheduler", "instance": "10.0.0.1:10259"}
TEXT = b"""\
# HELP workqueue_depth Current depth.
# TYPE workqueue_depth gauge
workqueue_depth{name="nodes"} 3
workqueue_depth{name="pods",job="theirs"} NaN
# TYPE workqueue_adds_total counter
workqueue_adds_total{name="nodes"} 1.5e+03
# TYPE rest_seconds histogram
rest_seconds_bucket{le="0.1"} 7
rest_seconds_bucket{le="+Inf"} 9
rest_seconds_sum 1.25
rest_seconds_count 9
# TYPE other_total counter
other_total 1
"""


def minute(number: float) -> datetime:
    return T0 + timedelta(minutes=number)


def told(series: list[MetricSeries]) -> dict[tuple[str, str], float]:
    return {(one.name, dict(one.labels).get("name", "")): one.values[0] for one in series}


def test_a_target_that_tells_too_much_is_not_read_and_what_was_known_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "MOST_SERIES", 4)
    scraped = Scraped(LABELS, Redactor(b"k" * 32), Kept(begins=("rest_",)))
    assert len(scraped.take(b"rest_a 1\nrest_b 2\nrest_c 3\n", minute(0))) == 4  # with up
    more = b"".join(b'rest_a{x="%d"} 1\n' % n for n in range(5))
    with pytest.raises(UnreadableError, match="5 series are kept, of at most 4 of a target: name fewer"):
        scraped.take(more, minute(1))
    ended = {one.name for one in scraped.miss(minute(1)) if is_stale(one.values[0])}
    assert ended == {"rest_a", "rest_b", "rest_c"}


def test_what_is_wanted_is_read_with_the_labels_of_its_target() -> None:
    found = read(TEXT, KEPT, LABELS)
    values = {(name, dict(labels).get("name", "")): told for (name, labels), told in found.items()}
    assert values.pop(("workqueue_depth", "pods"))[0] == "gauge"
    assert values == {
        ("workqueue_depth", "nodes"): ("gauge", 3.0),
        ("workqueue_adds_total", "nodes"): ("counter", 1500.0),
        ("rest_seconds_sum", ""): ("histogram", 1.25),
        ("rest_seconds_count", ""): ("histogram", 9.0),
    }
    clash = next(dict(labels) for name, labels in found if dict(labels).get("name") == "pods")
    assert (clash["job"], clash["exported_job"], clash["instance"]) == ("kube-scheduler", "theirs", "10.0.0.1:10259")


def test_a_counter_is_called_as_its_program_calls_it() -> None:
    text = b"# TYPE felix_int_dataplane_failures counter\nfelix_int_dataplane_failures 3\n"
    assert read(text, Kept(frozenset({"felix_int_dataplane_failures"})), {}) == {
        ("felix_int_dataplane_failures", ()): ("counter", 3.0)
    }


BUCKETS = rb"""
# TYPE asked_seconds histogram
asked_seconds_bucket{verb="GET",resource="pods",le="0.1"} 7
asked_seconds_bucket{le="+Inf", verb="GET", resource="pods"} 9 1763800000000
asked_seconds_bucket{verb="GET",resource="nodes, le=\"0.1\"}",le="0.1"} 1e1
asked_seconds_bucket{verb="a\\\"b\n",resource="nodes",le="0.1"} 1
asked_seconds_sum{verb="GET",resource="pods"} 1
other_seconds_bucket{verb="GET",le="0.1"} 3
"""


def test_buckets_are_added_up_over_all_but_the_labels_that_are_asked_for() -> None:
    kept = Kept(frozenset({"asked_seconds_sum"}), {"asked_seconds_bucket": ("le", "verb")})
    found = read(BUCKETS, kept, {"job": "a"})
    assert {key: value for key, value in found.items() if key[0].endswith("_bucket")} == {
        ("asked_seconds_bucket", (("job", "a"), ("le", "0.1"), ("verb", "GET"))): ("histogram", 17.0),
        ("asked_seconds_bucket", (("job", "a"), ("le", "+Inf"), ("verb", "GET"))): ("histogram", 9.0),
        ("asked_seconds_bucket", (("job", "a"), ("le", "0.1"), ("verb", 'a\\"b\n'))): ("histogram", 1.0),
    }
    assert len(found) == 4


@pytest.mark.parametrize(
    "line", [b'x_bucket{le="1"} one', b'x_bucket{le="1"}', b"x_bucket 1", b'x_bucket{le="\xff"} 1']
)
def test_a_bad_bucket_is_a_bad_line(line: bytes) -> None:
    with pytest.raises(UnreadableError, match="not Prometheus' text"):
        read(line + b"\n", Kept(summed={"x_bucket": ("le",)}), {})


def test_what_begins_as_was_asked_for_is_kept_whole() -> None:
    names = {name for name, _ in read(TEXT, Kept(frozenset({"workqueue_depth"}), begins=("rest_", "oth")), {})}
    assert names == {"workqueue_depth", "rest_seconds_bucket", "rest_seconds_sum", "rest_seconds_count", "other_total"}
    assert read(TEXT, Kept(begins=("other_",)), {}) == {("other_total", ()): ("counter", 1.0)}
    assert read(TEXT, Kept(), {}) == {}


@pytest.mark.parametrize(
    "text", [b"workqueue_depth{name=} x\n", b'workqueue_depth{name="\xff"} 1\n', b"workqueue_depth one\n"]
)
def test_a_target_with_a_bad_line_is_not_understood(text: bytes) -> None:
    with pytest.raises(UnreadableError, match="not Prometheus' text"):
        read(text, KEPT, LABELS)


def test_a_page_that_asks_who_is_there_is_no_metrics() -> None:
    """A proxy's, answered with 200: nothing of it would be kept, and nobody would know why."""
    with pytest.raises(UnreadableError, match="not Prometheus' text"):
        read(b"\n<!doctype html>", KEPT, LABELS)
    assert read(b"", KEPT, LABELS) == {}


def test_a_bucket_counts_without_its_exemplar() -> None:
    """Of a target that writes OpenMetrics to whoever asks."""
    text = b"""\
# TYPE rest_seconds histogram
rest_seconds_bucket{le="0.1",path="/} # {"} 7 # {trace_id="a"} 0.05 1764345678.0
rest_seconds_bucket{le="+Inf",path="/} # {"} 9
# EOF
"""
    found = read(text, Kept(summed={"rest_seconds_bucket": ("le",)}), {})
    assert {dict(labels)["le"]: value for (_, labels), (_, value) in found.items()} == {"0.1": 7.0, "+Inf": 9.0}


def test_a_series_that_is_told_no_longer_ends_and_all_do_where_nobody_answers() -> None:
    scraped = Scraped(LABELS, Redactor(b"k" * 32), KEPT)
    first = scraped.take(TEXT, minute(0))
    assert told(first)["up", ""] == 1.0
    assert {one.times for one in first} == {(minute(0).timestamp(),)}
    less = told(scraped.take(TEXT.replace(b'workqueue_depth{name="nodes"} 3\n', b""), minute(1)))
    assert is_stale(less["workqueue_depth", "nodes"])
    assert math.isnan(less["workqueue_depth", "pods"])
    assert not is_stale(less["workqueue_depth", "pods"])
    away = told(scraped.miss(minute(2)))
    assert away.pop(("up", "")) == 0.0
    assert ("workqueue_depth", "nodes") not in away, "it ended a minute before"
    assert set(map(is_stale, away.values())) == {True}
    assert len(away) == 4
    assert told(scraped.miss(minute(3))) == {("up", ""): 0.0}


def test_the_marker_is_prometheus_own() -> None:
    assert is_stale(STALE)
    assert not any(map(is_stale, (math.nan, -math.nan, 0.0, math.inf)))


def test_labels_are_redacted() -> None:
    secret = "ghp_" + "a1B2" * 9
    text = f'workqueue_depth{{name="{secret}"}} 1\n'.encode()
    (one,) = (one for one in Scraped(LABELS, Redactor(b"k" * 32), KEPT).take(text, T0) if one.name != "up")
    assert secret not in str(one.labels)


def test_a_target_is_called_by_its_job_and_place() -> None:
    assert Target("https://10.0.0.1:10257/metrics", job="kcm").labels == {"job": "kcm", "instance": "10.0.0.1:10257"}
    assert Target("http://etcd/metrics", job="etcd", instance="a").labels == {"job": "etcd", "instance": "a"}
    with pytest.raises(msgspec.ValidationError, match="job: say what"):
        msgspec.convert({"url": "http://etcd/metrics"}, Target)


async def test_a_target_is_fetched_at_its_url() -> None:
    def answer(request: web.Request) -> web.Response:
        return web.Response(body=TEXT) if request.path == "/metrics" else web.Response(status=404)

    async with answering(answer) as url:
        assert await fetch(Target(f"{url}/metrics", job="x")) == TEXT
        with pytest.raises(OutboundError, match="404"):
            await fetch(Target(url, job="x"))
