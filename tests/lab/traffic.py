"""Requests that apps get, and what they and the Ingresses' controller count of them for a Prometheus that scrapes them.

Nobody sends them: who gets how many follows from the load, the endpoints and who calls; how they are answered from how
each pod is. So a counter is what it would be in a process: it begins at zero as that starts, and goes with it.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from zlib import crc32

from tests.lab.api import Json, Key, World, now
from tests.lab.apps import App, Outside
from tests.lab.counts import Counts, Door, Moment, Ways, chance, of_doors, so_many
from tests.lab.manifests import app_of, image_of, is_ready, uid_of
from tests.lab.network import INGRESS_CLASS, INGRESS_CONTROLLER, backends, led_to, lets_nobody_in
from tests.lab.sandboxes import Running

STEP_SECONDS, KEPT_SECONDS = 0.5, 120.0
LEAST, SPREAD = 3, 28
"""Requests a second that an app gets in all where nobody says: so many and, by its name, less than so many more."""
QUIET = 0.1
"""The share of it that comes while none of those is ready who usually ask."""
ANSWER_SECONDS, TIMEOUT_SECONDS, LEAST_FREE = 0.02, 1.0, 0.05
BROKEN, NOT_FOUND = 0.001, 0.01
"""The shares of requests that always end so."""
PASSED_ON, DEPTH = 0.7, 2
"""How much of what its upstreams fail an app fails itself, and how far that reaches."""
INGRESS_JOB = "ingress-nginx/ingress-nginx-controller"
STATUS = re.compile(r"statuscode: ([45]\d\d)")


class Traffic:
    """What all apps get. ``running`` are the processes that are there and reached, ``lag`` that of the variation."""

    def __init__(
        self,
        world: World,
        apps: Mapping[str, App],
        outside: Outside,
        running: Callable[[], Iterable[Running]],
        *,
        seed: int = 0,
        lag: float = 0.0,
    ) -> None:
        self._world, self._apps, self._outside, self._running = world, apps, outside, running
        self._rng = random.Random(f"traffic {seed}")
        self._lag = timedelta(seconds=lag)
        self._endpoints: dict[Key, list[Json]] = {}
        self._there: dict[str, Running] = {}  # by uid of the pod, as the next three
        self._failing: dict[str, float] = {}
        self._weights: dict[str, float] = {}
        self._processes: dict[str, Counts] = {}
        self._controllers: set[tuple[str, datetime]] = set()
        self._doors: dict[Door, Counts] = {}
        self._astray = set[Door]()  # those that name a port which their Service does not have
        self._served: set[str] = set()  # images of which a Service had a pod
        self._known: set[str] = set()  # images of which a pod was ready once
        self._moments: deque[Moment] = deque()
        self._meters: list[tuple[Callable[[], float], list[int]]] = []

    async def run(self) -> None:
        """For ever."""
        before = now()
        while True:
            await asyncio.sleep(STEP_SECONDS)
            at = now()
            self.step(at, (at - before).total_seconds())
            before = at

    # -- what Prometheus finds

    def exposed(self) -> Iterator[tuple[str, str]]:
        """The job of each target that is up, and what it answers."""
        for uid, one in self._there.items():
            image, meta = image_of(one.container.pod), one.container.pod["metadata"]
            if one.app.serves and image in self._served:
                text = self._processes[uid].text(namespace=meta["namespace"], pod=meta["name"])
                yield f"{meta['namespace']}/{app_of(image)[1]}", text
        if self._controllers:
            yield INGRESS_JOB, of_doors(self._doors)

    def adding_up(self, rate: Callable[[], float]) -> Callable[[], float]:
        """A counter of what happens about so often a second."""
        total = [0]
        self._meters.append((rate, total))
        return lambda: total[0]

    def is_up(self, namespace: str, name: str) -> bool:
        """Whether a process of an app is there to be scraped; what is no app is scraped elsewhere."""
        place = (namespace, name)
        is_app = any(app_of(image) == place for image in self._apps)
        return not is_app or any(app_of(image_of(one.container.pod)) == place for one in self._there.values())

    def of_app(self, namespace: str, name: str, seconds: float) -> Counts:
        """What the processes of an app have counted in the last seconds."""
        return self._lately(("app", namespace, name), seconds)

    def of_ingress(self, namespace: str, name: str, seconds: float) -> Counts:
        """What was answered to who came to an Ingress in the last seconds."""
        return self._lately(("ingress", namespace, name), seconds)

    def _lately(self, who: tuple[str, ...], seconds: float) -> Counts:
        whole = Counts(now())
        for moment in self._moments:
            if self._moments[-1].at - moment.at < timedelta(seconds=seconds) and who in moment.counted:
                whole.add(moment.counted[who])
        return whole

    # -- what comes

    def step(self, at: datetime, seconds: float) -> None:
        """What comes in the seconds up to a time."""
        for rate, total in self._meters:
            total[0] += chance(self._rng, rate() * seconds)
        self._look()
        ways, callers = self._who_asks()
        there = dict.fromkeys((*self._world["Service"], *ways))  # an Ingress may lead to a Service that is gone
        endpoints = {place: backends(self._world, *place) for place in there}
        services = {place: self._asked(place) or found for place, found in endpoints.items()}
        self._endpoints = endpoints
        self._served |= {image_of(pod) for found in endpoints.values() for pod in found}
        self._remember(at, services)
        apps = {app_of(image): app for image, app in self._apps.items()}
        for place, found in services.items():
            doors = ways[place]
            home = _home(place, found, apps)
            if home != place and home in services and not doors:
                continue  # a further Service of pods that have one of their name
            app = apps.get(home)
            load = _in_all(app, place)
            if callers[place] and not any(callers[place]):
                load *= QUIET
            for door in doors or (None,):
                behind = [] if door in self._astray else found
                self._arrive(behind, door, load * seconds / max(1, len(doors)), load / max(1, len(found)), apps)

    def _asked(self, place: Key) -> list[Json]:
        """Who was an endpoint as the moment began: its requests go there, but not to who was told to end."""
        found = []
        for before in self._endpoints.get(place, ()):
            pod = self._world["Pod"].get((place[0], before["metadata"]["name"]))
            if pod and uid_of(pod) == uid_of(before) and "deletionTimestamp" not in pod["metadata"]:
                found.append(pod)
        return found

    def _look(self) -> None:
        """Who is there: whoever was started anew counts from zero."""
        self._there = {uid_of(one.container.pod): one for one in self._running()}
        for uid, one in self._there.items():
            if uid not in self._processes or self._processes[uid].started != one.started:
                self._processes[uid] = Counts(one.started)
        for uid in self._processes.keys() - {uid_of(pod) for pod in self._world["Pod"].values()}:
            del self._processes[uid]
        controllers = {
            (uid, one.started)
            for uid, one in self._there.items()
            if app_of(image_of(one.container.pod)) == INGRESS_CONTROLLER
        }
        if not controllers & self._controllers:
            self._doors.clear()
        self._controllers = controllers

    def _remember(self, at: datetime, services: Mapping[Key, list[Json]]) -> None:
        """What whoever calls a Service meets there now: who is not there any more answers nothing."""
        self._failing = {uid: _failing(one) for uid, one in self._there.items()}
        waits = {uid: one.app.latency(one.container) for uid, one in self._there.items()}
        self._weights = {uid: one.app.weight(one.container) for uid, one in self._there.items()}
        met = {
            place: [(part, self._failing.get(uid, 1.0), waits.get(uid, 0.0)) for uid, part in self._parts(found)]
            for place, found in services.items()
            if found
        }
        moment = Moment(
            at,
            {place: sum(part * share for part, share, _ in each) for place, each in met.items()},
            {place: sum(part * seconds for part, _, seconds in each) for place, each in met.items()},
        )
        self._moments.append(moment)
        while self._moments[0].at < at - max(self._lag, timedelta(seconds=KEPT_SECONDS)):
            self._moments.popleft()

    def _parts(self, found: list[Json]) -> list[tuple[str, float]]:
        """Which part of what comes each of these pods gets, by uid: all the same, where they do not say otherwise."""
        weights = {uid: self._weights.get(uid, 1.0) for uid in map(uid_of, found)}
        whole = sum(weights.values())
        return [(uid, weight / whole if whole else 1 / len(found)) for uid, weight in weights.items()]

    def _who_asks(self) -> tuple[Ways, defaultdict[Key, list[bool]]]:
        """The Ingresses that lead to each Service; and of each who usually asks it, an Ingress too, whether it can."""
        ways, callers = Ways(list), defaultdict[Key, list[bool]](list)
        is_open = self._outside.reached() and bool(backends(self._world, *INGRESS_CONTROLLER))
        served = set[Door]()
        for (namespace, name), ingress in self._world["Ingress"].items():
            is_served = ingress["spec"].get("ingressClassName") == INGRESS_CLASS
            rules = ingress["spec"].get("rules", ())
            hosts = {rule.get("host") for rule in rules}
            can_come = is_open and not (hosts and hosts <= self._outside.unreached)
            for service, is_there in led_to(self._world, namespace, ingress).items():
                callers[namespace, service].append(can_come and is_served)
                if is_served:
                    served.add(door := Door(namespace, name, service))
                    (self._astray.discard if is_there else self._astray.add)(door)
                    ways[namespace, service] += [door] if can_come else []
        for door in self._doors.keys() - served:
            del self._doors[door]
        ready = {image_of(pod) for pod in self._world["Pod"].values() if is_ready(pod)}
        self._known |= ready
        for image, app in self._apps.items():
            for upstream in app.upstreams if image in self._known else ():
                callers[upstream].append(image in ready)
        return ways, callers

    def _arrive(self, found: list[Json], door: Door | None, mean: float, each: float, apps: Mapping[Key, App]) -> None:
        """About ``mean`` requests, by a door or from within; ``each`` a second is what a pod gets in all."""
        there = [pod for pod in found if (one := self._there.get(uid_of(pod))) and not _is_shut(one)]
        asked = there if door and there else found  # a proxy tries another one
        if door and not asked:
            self._count(door, "503", chance(self._rng, mean))
        parts = dict(self._parts(asked))
        for pod in asked:
            part = parts[uid_of(pod)]
            number = chance(self._rng, mean * part)
            is_closed = bool(door) and lets_nobody_in(pod, INGRESS_CONTROLLER[0], self._outside.apart)
            if (one := self._there.get(uid_of(pod))) and not (is_closed or _is_shut(one)):
                share = max(self._outside.lost(), self._outside.misled(door.namespace)) if door else 0.0
                lost = so_many(self._rng, number, share)
                self._count(door, "502", lost)
                self._answer(one, door, number - lost, each * part * len(asked), apps)
            elif door:
                self._count(door, "504" if is_closed else "502", number)

    def _answer(self, one: Running, door: Door | None, number: int, each: float, apps: Mapping[Key, App]) -> None:
        """So many requests come to a process."""
        moment, app, pod = self._moments[-1], one.app, one.container.pod
        shown = next((past for past in reversed(self._moments) if past.at <= moment.at - self._lag), Moment(moment.at))
        share, passed = self._failing[uid_of(pod)], _handed_on(app, shown.failing, apps)
        free = max(LEAST_FREE, 1 - each / app.capacity)
        mean = (app.answer_seconds or ANSWER_SECONDS) / free + app.latency(one.container)
        mean += _handed_on(app, shown.waits, apps) + _waits_in_vain(one)
        counts = Counts(moment.at)
        for _ in range(number):
            counts.answers[self._code(one, share, passed)] += 1
            counts.seconds += self._rng.gammavariate(4, mean / 4)
        if app.serves:
            self._processes[uid_of(pod)].add(counts)
        moment.count(("app", pod["metadata"]["namespace"], app_of(image_of(pod))[1]), counts)
        for code, times in counts.answers.items() if door else ():
            refused = so_many(self._rng, times, app.too_large(one.container))
            self._count(door, "502", refused)
            self._count(door, code, times - refused)

    def _code(self, one: Running, share: float, passed: float) -> str:
        """Of one answer, where a share fails, and one for what its upstreams fail."""
        if self._rng.random() < share:
            return _wrong(one)
        if self._rng.random() < max(passed, BROKEN):
            return "500"
        return "404" if self._rng.random() < NOT_FOUND else "200"

    def _count(self, door: Door | None, status: str, times: int) -> None:
        """What the controller answered."""
        if door and times:
            moment = self._moments[-1]
            counted = Counts(moment.at, Counter({status: times}))
            self._doors.setdefault(door, Counts(moment.at)).add(counted)
            moment.count(("ingress", door.namespace, door.ingress), counted)


def _home(place: Key, found: list[Json], apps: Mapping[Key, App]) -> Key:
    """Whose pods a Service has: the app of its name, or else that of the first."""
    return place if place in apps or not found else app_of(image_of(found[0]))


def _in_all(app: App | None, place: Key) -> float:
    """Requests a second that an app gets in all."""
    if app and app.asked:
        return app.asked()
    return app.load if app and app.load else _usual(place)


def _usual(place: Key) -> float:
    return float(LEAST + crc32("/".join(place).encode()) % SPREAD)


def _handed_on(app: App, told: Mapping[Key, float], apps: Mapping[Key, App], depth: int = DEPTH) -> float:
    """What the worst of its upstreams, and of theirs, makes of an app's own answers."""
    worst = 0.0
    for upstream in app.upstreams if depth else ():
        beyond = _handed_on(apps[upstream], told, apps, depth - 1) if upstream in apps else 0.0
        worst = max(worst, PASSED_ON * max(told.get(upstream, 0.0), beyond))
    return worst


def _failing(one: Running) -> float:
    is_lost = (one.problem is not None and not one.problem.answers) or one.app.deaf(one.container)
    return 1.0 if is_lost else min(1.0, max(0.0, one.app.failing(one.container)))


def _is_shut(one: Running) -> bool:
    """Whether what is sent to a pod ends at a proxy beside its app, or where nobody listens: it counts none of it."""
    return (one.problem is not None and one.is_beside) or one.app.deaf(one.container)


def _wrong(one: Running) -> str:
    """What it answers: to users what its probe is told."""
    if one.problem is None or one.problem.answers:
        return one.app.fails_with(one.container)
    told = STATUS.search(one.problem.message)
    return told[1] if told else "503"


def _waits_in_vain(one: Running) -> float:
    """Whose problem is that nobody answers it answers late itself."""
    message = one.problem.message if one.problem else ""
    return TIMEOUT_SECONDS if "exceeded" in message or "timeout" in message else 0.0
