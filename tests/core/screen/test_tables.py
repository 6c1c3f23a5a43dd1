"""Tables as REST and the command line print them."""

from __future__ import annotations

import pytest

from app.core.screen.tables import _rate


@pytest.mark.parametrize(
    ("per_second", "said"), [(0, "0.0"), (1 / 3600, "0.0003"), (0.05, "0.0500"), (0.1, "0.1"), (40.04, "40.0")]
)
def test_what_is_called_once_in_an_hour_is_not_never_called(per_second: float, said: str) -> None:
    assert _rate("per_second")({"per_second": per_second}) == said
