import gc

from app.collect.garbage import OBJECTS, garbage_rarely, loaded_stays


def test_cycles_are_looked_for_rarely_and_then_as_before() -> None:
    before = gc.get_threshold()
    with garbage_rarely():
        assert gc.get_threshold() == (OBJECTS, *before[1:])
    assert gc.get_threshold() == before


def test_what_is_loaded_is_looked_through_no_more_while_served() -> None:
    loaded: list[str] = []
    with loaded_stays():
        assert gc.get_threshold()[0] == OBJECTS
        assert not any(one is loaded for one in gc.get_objects())
        made: list[object] = []
        made.append(made)
        assert any(one is made for one in gc.get_objects())
        # What is read meanwhile changes nothing of it.
        frozen = gc.get_freeze_count()
        with garbage_rarely():
            pass
        assert gc.get_freeze_count() <= frozen
        assert not any(one is loaded for one in gc.get_objects())
    assert gc.get_freeze_count() == 0
