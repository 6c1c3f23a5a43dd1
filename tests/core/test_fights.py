from app.core.fights import write_fights
from app.core.model import Actor, ActorSource, Change
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


def test_one_actor_with_two_intents_fights_itself() -> None:
    (fight,) = write_fights(rewrites(20, values=("server", "worker"), actors=(SERVER,)))
    assert fight.writers == ("controller-a",)


def test_objects_that_fight_over_one_field_are_one_fight() -> None:
    both = [c for n in ("one", "two") for c in rewrites(20, values=("a", "b"), actors=(SERVER, WORKER), name=n)]
    (fight,) = write_fights(both)
    assert len(fight.objects) == 2
    assert fight.writes == 40


def test_a_counter_that_only_moves_on_is_no_fight() -> None:
    assert write_fights(rewrites(30, values=tuple(str(n) for n in range(30)), actors=(SERVER,))) == []


def test_a_few_corrections_are_no_fight() -> None:
    assert write_fights(rewrites(6, values=("a", "b"), actors=(SERVER, WORKER))) == []
