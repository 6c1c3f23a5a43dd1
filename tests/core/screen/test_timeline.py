"""A window on one axis: where things fall, how they are packed, what stands out."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from msgspec.structs import replace

from app.core.findings import CallerRow, Spark
from app.core.model import Outcome, Resource, Rollout
from app.core.phrases import duration, measure, number, short_actor, t_minus
from app.core.screen.axis import WIDTH, Axis, ticks
from app.core.screen.lanes import APART, BAR_ROWS, POINT_ROWS, Mark, lanes, pack
from app.core.screen.timeline import HEAT_LEVELS, density, heats, line, picture, sides
from tests.web import world

START = datetime(2026, 11, 20, 14, 0, tzinfo=UTC)
AXIS = Axis(START, START + timedelta(seconds=100))


def a_mark(second: float, *, count: int = 1, kind: str = "ConfigMap", api_group: str = "") -> Mark:
    return Mark(api_group, kind, START + timedelta(seconds=second), count, f"{second}", "settings")


def test_an_axis_places_times_and_clips_what_lies_outside() -> None:
    assert AXIS.x(START) == 0
    assert AXIS.x(START + timedelta(seconds=25)) == 250
    assert AXIS.x(START - timedelta(days=1)) == 0
    assert AXIS.x(START + timedelta(days=1)) == WIDTH


def test_a_window_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match="end after it begins"):
        Axis(START, START)


@pytest.mark.parametrize(
    ("length", "first", "step"),
    [
        (timedelta(seconds=100), "14:00:15", timedelta(seconds=15)),
        (timedelta(hours=2), "14:15", timedelta(minutes=15)),
        (timedelta(days=5), "Nov 21", timedelta(days=1)),
    ],
)
def test_ticks_are_round_times(length: timedelta, first: str, step: timedelta) -> None:
    axis = Axis(START, START + length)
    found = ticks(axis)
    assert found[0].text == first
    assert found[1].x - found[0].x == pytest.approx(step / length * WIDTH, abs=0.2)
    assert len(found) <= 8


def test_density_counts_every_change_of_the_window_once() -> None:
    marks = [a_mark(0, count=3), a_mark(50), a_mark(100), a_mark(101)]
    columns = density(AXIS, marks, columns=10)
    assert columns[0] == 3
    assert columns[5] == 1
    assert columns[9] == 1
    assert sum(columns) == 5


def test_bars_that_touch_go_into_different_rows_and_none_is_lost() -> None:
    spots, rows = pack([(0, 100, "plain", "a", ""), (50, 60, "plain", "b", ""), (200, 210, "plain", "c", "")])
    assert [spot.row for spot in spots] == [0, 1, 0]
    assert rows == 2
    many, rows = pack([(0, 1000, "plain", str(n), "") for n in range(50)])
    assert len(many) == 50
    assert rows == BAR_ROWS
    assert max(spot.row for spot in many) == BAR_ROWS - 1


def test_a_gap_in_a_line_stays_a_gap_and_zero_is_not_one() -> None:
    spark = Spark("Requests", "/s", START.timestamp(), 10, (4.0, None, 0.0, 8.0), None)
    found = line(AXIS, spark)
    assert found.points == ((0.0, 0.5), None, (200.0, 0.0), (300.0, 1.0))
    assert found.subtitle == "peak 8/s"
    assert not found.bad


def test_a_line_without_samples_in_the_window_says_so() -> None:
    spark = Spark("Requests", "/s", START.timestamp() + 1000, 10, (4.0,), None)
    assert line(AXIS, spark).subtitle == "not measured here"


def a_caller(user: str, *, before: float, after: float, resource: str = "pods") -> CallerRow:
    counts = tuple(int(before * 5) for _ in range(10)) + tuple(int(after * 5) for _ in range(10))
    return CallerRow(user, "patch", resource, START.timestamp(), 5, counts, before, after)


def test_the_caller_that_rose_is_loud_and_rows_of_one_user_add_up() -> None:
    callers = [
        a_caller("system:serviceaccount:shop:loud", before=0, after=20),
        a_caller("system:serviceaccount:shop:loud", before=0, after=20, resource="secrets"),
        a_caller("system:kube-scheduler", before=10, after=10),
    ]
    loud, calm = heats(AXIS, callers)
    assert (loud.title, loud.loud, calm.title, calm.loud) == ("loud", True, "kube-scheduler", False)
    assert {level for _, _, level in loud.cells} == {HEAT_LEVELS}
    assert {level for _, _, level in calm.cells} == {2}
    assert loud.most == "patch pods"
    assert len(loud.cells) == 10  # before it rose there was nothing to draw


def test_points_that_find_no_room_are_counted_with_one_that_did_and_the_suspect_is_always_drawn() -> None:
    marks = [a_mark(second / 10, count=2) for second in range(1000)]
    chosen = marks[777].change_id
    (_rollouts, lane) = lanes(AXIS, marks, (), problems=(), chosen=chosen)
    assert lane.rows == POINT_ROWS
    assert len(lane.spots) <= POINT_ROWS * WIDTH / APART + 1
    told = [1 + int(spot.label.partition(" and ")[2].partition(" more")[0] or 0) for spot in lane.spots]
    assert sum(told) == 2 * len(marks)
    assert [spot.change_id for spot in lane.spots if spot.tone == "suspect"] == [chosen]
    for row in range(POINT_ROWS):
        places = [spot.x for spot in lane.spots if spot.row == row and spot.tone == "plain"]
        assert all(later - earlier > APART for earlier, later in pairwise(places))


def test_the_picture_holds_everything_and_the_first_suspect_stands_out() -> None:
    ranking, incident = world.ranking(), world.incident()
    culprit = world.CULPRIT
    rollout = Rollout(culprit.resource, culprit.uid, 2, culprit.at, Outcome.RUNNING, change_id=culprit.id)
    failed = Rollout(
        Resource(world.CLUSTER, "apps", "Deployment", "shop", "other"), "u", 1, world.START, Outcome.FAILED, world.END
    )
    marks = [
        Mark("apps", "Deployment", culprit.at, 1, culprit.id, "checkout-api"),
        Mark("", "ConfigMap", world.START, 2, "x", "settings"),
    ]
    drawn = picture(
        Axis(world.START, world.END),
        incident,
        ranking,
        marks=marks,
        derived=7,
        rollouts=[rollout, failed],
        problems=(),
        gaps=[world.gap()],
    )
    assert [moment.key for moment in drawn.moments] == ["suspect", "onset", "alert"]
    assert [moment.x for moment in drawn.moments] == sorted(moment.x for moment in drawn.moments)
    assert (drawn.shown, drawn.derived) == (3, 7)
    assert [lane.title for lane in drawn.lanes] == ["Rollouts", "Config"]
    tones = {spot.change_id: spot.tone for spot in drawn.lanes[0].spots}
    assert tones[culprit.id] == "suspect"
    assert "failed" in tones.values()
    assert len(drawn.lanes[0].spots) == 2  # a change that is a rollout's beginning is drawn once
    assert drawn.lanes[0].subtitle == "2 · 1 running"
    assert drawn.blind[0].text == world.gap().why
    assert len(drawn.lines) == len(ranking.sparks)
    assert drawn.braids[0].subtitle == "owner-signature of checkout"


@pytest.mark.parametrize(
    ("writers", "values", "expected"),
    [
        (("system:serviceaccount:a:one", "two"), ("x", "y"), "one ⇄ two"),
        (("one", "two", "three"), (), "one ⇄ two + 1"),
        (("system:serviceaccount:a:one",), ("x", "y"), "2 values by one"),
        (("one", ""), ("x", "y"), "one ⇄ someone unknown"),
    ],
)
def test_a_fight_names_its_sides(writers: tuple[str, ...], values: tuple[str, ...], expected: str) -> None:
    fight = replace(world.ranking().fights[0], writers=writers, values=values)
    assert sides(fight) == expected


def test_moments_outside_the_window_are_not_drawn() -> None:
    axis = Axis(world.START - timedelta(hours=1), world.START)
    drawn = picture(axis, world.incident(), world.ranking(), marks=(), derived=0, rollouts=(), problems=(), gaps=())
    assert drawn.moments == ()


def test_an_onset_that_was_not_measured_is_not_drawn_on_top_of_the_alert() -> None:
    axis, incident, ranking = Axis(world.START, world.END), world.incident(), world.ranking()
    unmeasured = replace(ranking, onset=replace(ranking.onset, at=incident.started_at))
    drawn = picture(axis, incident, unmeasured, marks=(), derived=0, rollouts=(), problems=(), gaps=())
    assert [moment.key for moment in drawn.moments] == ["suspect", "alert"]


def test_an_incident_that_is_not_ranked_can_be_drawn() -> None:
    axis = Axis(world.START, world.END)
    drawn = picture(axis, world.incident(), None, marks=(), derived=0, rollouts=(), problems=(), gaps=())
    assert [moment.key for moment in drawn.moments] == ["alert"]
    assert (drawn.lines, drawn.heats, drawn.braids) == ((), (), ())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.35, "350 ms"),
        (0.9996, "1 s"),
        (4.2, "4 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_t_minus_counts_down_to_the_onset_and_on() -> None:
    assert t_minus(timedelta(seconds=4)) == "T−4 s"
    assert t_minus(timedelta(minutes=-2)) == "T+2 min"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0098, "s", "9.8 ms"),
        (48, "s", "48 s"),
        (123.4, "/s", "123/s"),
        (3 * 2**30, "B", "3 GiB"),
        (12_400, "", "12,400"),
    ],
)
def test_measures(value: float, unit: str, text: str) -> None:
    assert measure(value, unit) == text


def test_small_numbers_keep_their_figures() -> None:
    assert number(0.042) == "0.042"
    assert number(3.54) == "3.54"


def test_a_service_account_is_called_by_its_own_name() -> None:
    assert short_actor("system:serviceaccount:argocd:argocd-application-controller") == "argocd-application-controller"
    assert short_actor("alice@shop.example") == "alice@shop.example"
