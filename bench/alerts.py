"""How long a storm of alerts takes to be made incidents of: ``python -m bench.alerts``, five seconds.

Ten times as many may take at most FURTHER times as long: each must not be compared with all others.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from time import process_time

from app.core.incidents.bundles import bundle
from app.core.model import Symptom, SymptomSource
from bench.gates import Gate, yardstick

FEW, MANY, FURTHER = 1_000, 10_000, 40
NAMESPACES, SPREAD = 300, 300
"""How many are hurt, within how many seconds."""


def storm(number: int) -> list[Symptom]:
    began = datetime(2026, 11, 30, 3, tzinfo=UTC)
    return [
        Symptom(
            at=began + timedelta(seconds=n % SPREAD),
            source=SymptomSource.ALERT,
            reason=f"Alert{n % 40}",
            fingerprint=f"{n:016x}",
            severity="critical",
            labels=(("deployment", f"web-{n}"), ("namespace", f"team-{n % NAMESPACES}")),
        )
        for n in range(number)
    ]


def seconds(number: int) -> float:
    """Of a processor, for a webhook of so many alerts in a cluster without incidents."""
    alerts, began = storm(number), process_time()
    bundle(alerts, [], cluster="bench")
    return process_time() - began


def main() -> None:
    few, many = min(seconds(FEW) for _ in range(3)), seconds(MANY)
    gate = Gate(f"{MANY:,} alerts beside {FEW:,}", many / few, "x", at_most=FURTHER)
    sys.stdout.write(f"{FEW:,} alerts: {few:.3f} s, {MANY:,}: {many:.2f} s (yardstick {yardstick():.0f} ms)\n{gate}\n")
    sys.exit(not gate.holds)


if __name__ == "__main__":
    main()
