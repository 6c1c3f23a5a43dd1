import pytest
from msgspec.structs import replace

from app.core.edges.indexing import topology
from app.core.edges.reach import reach
from app.core.model import NOBODY, Actor, ActorSource, Change, Outcome, Rollout, Verb
from app.core.signals.fight_signals import fight_signal
from app.core.signals.fights import fight_members, write_fights
from app.core.signals.worked import with_rolled_out
from tests.core.factories import a_change, a_resource, after

SERVER = Actor("controller-a", ActorSource.AUDIT)
WORKER = Actor("controller-b", ActorSource.AUDIT)
OWNER = ("metadata", "annotations", "owner")


def rewrites(count: int, *, values: tuple[str, ...], actors: tuple[Actor, ...], name: str = "shared") -> list[Change]:
    account = a_resource("ServiceAccount", name)
    return [
        a_change(
            account,
            at=after(i),
            path=OWNER,
            old=values[(i - 1) % len(values)],
            new=values[i % len(values)],
            actor=actors[i % len(actors)],
        )
        for i in range(count)
    ]


def test_two_writers_that_return_a_field_to_its_former_value_fight() -> None:
    (fight,) = write_fights(rewrites(20, values=("server", "worker"), actors=(SERVER, WORKER)))
    assert fight.path_text == "metadata.annotations.owner"
    assert set(fight.writers) == {"controller-a", "controller-b"}
    assert set(fight.values) == {"server", "worker"}
    assert fight.writes == 20
    assert 0.9 < fight.per_second < 1.2


def test_a_fight_is_told_by_a_part_of_its_blows() -> None:
    blows = rewrites(200, values=("server", "worker"), actors=(SERVER, WORKER))
    part = [*blows[:20], *blows[80:120], *blows[180:]]
    (whole,) = write_fights(blows)
    (fight,) = write_fights(part, stands_for=dict.fromkeys((blow.key for blow in part), 2.5))
    assert fight == replace(whole, values=fight.values)
    assert set(fight.values) == set(whole.values)


def test_one_actor_with_two_intents_fights_itself() -> None:
    (fight,) = write_fights(rewrites(20, values=("server", "worker"), actors=(SERVER,)))
    assert fight.writers == ("controller-a",)


def test_a_side_that_nobody_knows_is_a_side() -> None:
    (fight,) = write_fights(rewrites(20, values=("server", "worker"), actors=(SERVER, NOBODY)))
    assert "controller-a rewrites it, and so does someone unknown" in fight_signal(fight, ()).sentence


def test_objects_that_fight_over_one_field_are_one_fight() -> None:
    both = [c for n in ("one", "two") for c in rewrites(20, values=("a", "b"), actors=(SERVER, WORKER), name=n)]
    (fight,) = write_fights(both)
    assert len(fight.objects) == 2
    assert fight.writes == 40


def test_a_counter_that_only_moves_on_is_no_fight() -> None:
    assert write_fights(rewrites(30, values=tuple(str(n) for n in range(30)), actors=(SERVER,))) == []


def test_a_few_corrections_are_no_fight() -> None:
    assert write_fights(rewrites(6, values=("a", "b"), actors=(SERVER, WORKER))) == []


def edits(count: int, *, start: float, every: float = 1.0) -> list[Change]:
    """Honest edits of the same field, each to a value of its own."""
    account = a_resource("ServiceAccount", "shared")
    return [
        a_change(account, at=after(start + every * i), path=OWNER, old=f"{start}{i}", new=f"{start}{i + 1}")
        for i in range(count)
    ]


@pytest.mark.parametrize(
    "honest",
    [
        edits(1, start=-72_000),
        edits(20, start=-40),
        edits(3, start=9_000, every=600),
        [*edits(12, start=-30), *edits(12, start=70)],
    ],
)
def test_honest_edits_before_and_after_hide_no_fight(honest: list[Change]) -> None:
    blows = rewrites(60, values=("server", "worker"), actors=(SERVER, WORKER))
    (fight,) = write_fights([*honest, *blows])
    assert 59 <= fight.writes <= 61
    assert abs((fight.began_at - after(0)).total_seconds()) <= 1
    assert abs((fight.ended_at - after(59)).total_seconds()) <= 1
    assert set(fight.writers) == {"controller-a", "controller-b"}
    blown = {change.key for change in fight_members([*honest, *blows], [fight])}
    assert {change.key for change in blows[1:]} <= blown
    assert len(blown & {change.key for change in honest}) <= 1


def slowly(actor: Actor) -> list[Change]:
    """Twelve rewrites in five minutes."""
    return [
        replace(change, at=after(25 * number), actor=actor)
        for number, change in enumerate(rewrites(12, values=("on", "off"), actors=(actor,)))
    ]


def test_a_person_who_changes_their_mind_does_not_fight() -> None:
    assert write_fights(slowly(Actor("alice@shop.example", ActorSource.AUDIT, "kubectl"))) == []
    assert write_fights(slowly(Actor("kubectl-edit", ActorSource.MANAGED_FIELDS))) == []


def test_a_program_with_two_intents_fights_however_slowly() -> None:
    assert write_fights(slowly(Actor("system:serviceaccount:ops:flags", ActorSource.AUDIT)))
    assert write_fights(slowly(Actor("flags-controller", ActorSource.MANAGED_FIELDS)))


ACCOUNT = "system:serviceaccount:dns:external-dns"
PODS = tuple(Actor(ACCOUNT, ActorSource.AUDIT, pod=f"external-dns-{pod}") for pod in ("blkr7", "zzlxl"))


def test_a_fight_tells_its_pods_its_pace_and_the_rollout_before_it() -> None:
    (fight,) = write_fights(rewrites(30, values=("a", "b"), actors=PODS))
    home = a_resource("Deployment", "external-dns", "dns")
    rollouts = [
        Rollout(home, "u", 3, after(-9), Outcome.COMPLETE),
        Rollout(home, "u", 2, after(-5_000), Outcome.COMPLETE),
        Rollout(a_resource("Deployment", "other", "dns"), "v", 2, after(-2), Outcome.COMPLETE),
    ]
    sentence = fight_signal(fight, rollouts).sentence
    assert "2 pods of external-dns overwrite each other (external-dns-blkr7, external-dns-zzlxl)" in sentence
    assert "1.03 writes/s since" in sentence
    assert sentence.endswith(f"; external-dns was rolled out at {after(-9):%H:%M:%S}")


def test_a_program_may_be_called_otherwise_than_its_account() -> None:
    (fight,) = write_fights(rewrites(30, values=("a", "b"), actors=PODS))
    home = a_resource("Deployment", "dns-controller-manager", "dns")
    rollouts = [Rollout(home, "u", 3, after(-9), Outcome.COMPLETE)]
    account = ("dns", "external-dns")
    alone = fight_signal(fight, rollouts, runs={account: {("dns", home.name)}}).sentence
    assert alone.endswith(f"; dns-controller-manager was rolled out at {after(-9):%H:%M:%S}")
    two = fight_signal(fight, rollouts, runs={account: {("dns", home.name), ("dns", "other")}}).sentence
    assert "rolled out" not in two, "of two it is not known which wrote"


def test_a_fight_tells_of_each_writer_when_it_was_last_rolled_out() -> None:
    """The last first, once for each program, and how long ago it may be: what changed is told by the two together."""
    writers = tuple(Actor(f"system:serviceaccount:ops:{name}", ActorSource.AUDIT) for name in ("owner", "labeller"))
    (fight,) = write_fights(rewrites(30, values=("a", "b"), actors=writers))
    owner, labeller = (a_resource("Deployment", name, "ops") for name in ("owner", "labeller"))
    rollouts = [
        Rollout(owner, "u", 1, after(-9_000), Outcome.COMPLETE),
        Rollout(owner, "u", 2, after(-5_000), Outcome.COMPLETE),
        Rollout(labeller, "v", 7, after(-9), Outcome.COMPLETE),
        Rollout(labeller, "v", 8, after(20), Outcome.COMPLETE),
        Rollout(a_resource("Deployment", "owner", "shop"), "w", 2, after(-2), Outcome.COMPLETE),
    ]
    signal = fight_signal(fight, rollouts)
    said = f"; labeller was rolled out at {after(-9):%H:%M:%S}, owner at {after(-5_000):%H:%M:%S}"
    assert signal.sentence.endswith(said)
    yesterday = Rollout(owner, "u", 2, after(-80_000), Outcome.COMPLETE)
    sentence = fight_signal(fight, [yesterday]).sentence
    assert sentence.endswith(f"; owner was rolled out at {after(-80_000):%d %b %H:%M:%S}")
    # Whoever was rolled out last does not count for both: of two who fight, the ranking takes neither for the one.
    assert with_rolled_out([signal], rollouts) == [signal]


@pytest.mark.parametrize(
    ("key", "whose"),
    [
        ("archetype.shop.example/owner", "archetype"),
        ("app.kubernetes.io/version", None),
        ("kubernetes.io/config.seen", None),
        ("helm.sh/chart", None),
    ],
)
def test_keys_of_everybodys_domains_belong_to_no_component(key: str, whose: str | None) -> None:
    blows = [
        replace(change, diffs=(replace(change.diffs[0], path=("metadata", "labels", key)),))
        for change in rewrites(20, values=("a", "b"), actors=(SERVER, WORKER))
    ]
    (fight,) = write_fights(blows)
    prefixes = {entity[1] for entity in fight_signal(fight, ()).about if entity[0] == "prefix"}
    assert prefixes == ({whose} if whose else set())


def test_what_is_fought_over_was_not_made_to_be_fought_over() -> None:
    flags = a_resource("ConfigMap", "flags", "shop")
    made = a_change(flags, at=after(-5), path=(), old=None, new={"data": {}}, verb=Verb.CREATE)
    assert ("written", "ConfigMap", "shop", "flags") not in reach(made, topology([]))
    assert ("written", "ConfigMap", "shop", "flags") in reach(a_change(flags), topology([]))
