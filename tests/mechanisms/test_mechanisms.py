"""Every case of the table: the culprit leads, or where there is none, nothing is believed."""

from __future__ import annotations

import pytest

from tests.mechanisms.case import cases, told

BELIEVED = 0.5
"""A change that is given more than this where none is to blame is believed."""
KNOWN = {
    "small-buffer-for-the-head-of-an-answer": "a setting of the Ingress that messages name, just before, is nearer",
    "mirror-of-images-with-a-path-too-much": "the new version that asks for its own image is nearer",
    "agent-of-the-logs-that-keeps-them-in-memory": "what takes the memory of nodes beside is not known",
    "policy-that-gives-each-pod-two-cores": "what a policy fills in is not known to leave less room",
    "player-of-the-rushes-that-keeps-a-thread-for-each-viewing": "that a program hangs says not what it used up",
    "catalogue-with-twenty-shards-a-day": "which server a policy of its operator is for is not told by its name alone",
    "scale-of-the-breakfast-hour-in-the-time-of-london": "what an autoscaler does by the clock is not known",
    "connector-paused-while-its-slot-stays": "that a database keeps what a paused reader has not read is not known",
    "replicas-of-longhorn-that-are-balanced-by-day": "a class of storage that an alert names says not who keeps it",
    "feature-of-delays-asks-all-trains-of-the-day": "that a flag goes on by steps is not known",
    "mysql-with-a-smaller-room-for-temporary-tables": "that a shift begins to ask more is not told",
    "pension-statements-write-dates-without-a-zone": "a setting of what is called, just before, is nearer",
    "analysis-template-query-aborts-rollouts": "that two rollouts fail alike is not seen: three would be",
    "rabbitmq-policy-reject-publish": "a client's own harmless rollout is nearer, as its probe says only 503",
    "sidecar-injector-values-shrink-proxy": "what an injector reads by its name alone is not known",
    "vpa-updater-new-version-evicts": "few evictions are no load",
    "controller-wide-body-size-lowered": "the host in the message names an Ingress, too",
    "cronjob-timezone-removed": "that a file is not there says nothing of who should have written it",
    "default-storageclass-switched-to-nfs": "what a volume of another class is like is not known",
    "dependency-release-slow-queries": "that deadlines run out is not told from a client that asks too much",
    "new-default-limit-is-too-small": "an edit in the rollout that started pods with the limit is preferred",
    "new-version-leaks-connections-hurts-database": "a new image of a client is no burden to others",
    "operator-release-without-cache": "what the program was told while it was rolled out is preferred to its rollout",
    "producer-release-changes-record-format": "the reader's own new version may be wrong as well",
    "release-walks-shared-redis-with-keys": "what one call costs a server is not known",
    "global-default-priority-for-new-pods": "a Job that asks for much is preferred to the priority that it has now",
    "service-takes-address-of-outside-database": "the addresses behind outside names are not known",
    "log-agent-takes-all-inotify-instances": "what one agent takes of a node's other limits is not known",
    "retention-of-topic-shorter-than-a-batch": "what a client says of its position is not understood",
    "login-writes-groups-into-cookie": "that an annotation is about the log of requests alone is not known",
    "debug-lines-of-one-take-the-limit-of-all-logs": "whose lines use up a limit of all logs is not told",
    "database-made-strict-at-its-next-start": "the settings waited for months, and a new version is novel",
    "provider-of-the-firewall-ships-a-bad-rule": "who answers in front of the cluster is not known",
    "operator-told-to-watch-one-namespace-only": "what an operator no longer does, nobody complains of",
    "operator-removed-before-what-it-has-to-finish": "which operator a finalizer is of is not told by its rights",
    "field-pruned-as-the-definition-lost-it": "that a definition dropped a field at the next write is not known",
    "database-at-the-end-of-its-transaction-numbers": "settings that were tuned beside are believed",
    "one-asks-for-a-token-per-request-the-rest-log-in-again": "what one call costs a server is not known",
    "binding-moved-out-of-the-namespace-of-the-role": "what was started anew met it, and its rollout failed",
    "operator-comes-without-the-kind-it-needs": "what an operator no longer does, nobody complains of",
    "driver-no-longer-hands-volumes-to-the-group-of-the-pod": "what a driver does for new volumes is not known",
    "two-containers-of-a-pod-name-a-port-alike": "a setting of the client, just before, is nearer",
    "kubelets-ask-for-certificates-that-nobody-approves": "who reads the configuration of kubelets is not known",
    "every-word-of-a-log-line-becomes-a-field": "a limit that many fill up together is not known",
    "settings-made-immutable-before-the-next-key": "the release that needs the new key fails first",
    "what-the-deleted-one-owned-goes-with-it": "the case does not say who owned what was deleted",
    "moved-from-one-agent-path-to-another-and-pruned-by-the-first": "the case does not say whose the pruned one was",
    "two-budgets-for-one-pod": "the node that is not emptied is what the alert is about",
    "paused-connector-fills-wal": "what a custom resource has its operator keep in a database is not known",
    "zone-cut-off-while-a-part-of-the-calls-goes-to-a-new-version": "of two servers that are named the route is of one",
    "readers-of-a-queue-that-never-say-they-are-done": "that a broker complains of its client is not understood",
    "programs-start-before-their-proxy-is-there": "the rollout that met it is nearer, and what it says is ordinary",
    "nobody-is-told-any-more-to-read-the-queue-of-the-mails": "that an alert names what a list lost is not known",
    "program-that-sets-the-hours-runs-twice": "what must run once, and now runs twice, is not known",
    "webhook-of-the-names-is-given-one-second": "the server that is late says so itself, and was changed after",
    "flows-that-are-done-are-kept-for-good": "that nobody takes away any more what is done is not seen",
    "selector-that-cannot-be-changed-applied-again": "which of a controller's pods calls more is not looked at",
    "path-rewritten-at-the-edge-after-a-release": "that an API knows no such path is not understood",
    "role-of-the-attacher-cut-in-an-upgrade-of-a-chart": "the rollout that meets it is nearer",
    "operator-writes-what-its-servers-do-not-read-yet": "what an operator writes for its servers is not told",
    "certificate-of-an-injector-made-by-hand-ends": "a restart of the webhook that fails is believed",
    "feeds-for-partners-built-each-fifteen-seconds": "a setting of the server itself, just before, is nearer",
    "less-room-for-connections-on-every-node": "what pods complain of does not lead to a change of their nodes",
    "connection-to-redis-for-each-request": "a setting of a server is not told from one of its connections",
    "films-acknowledged-only-when-they-are-whole": "how long a broker waited is not read out of what it says",
    "release-that-came-before-its-migration": "another program's migration just before is believed",
    "a-worker-for-every-five-pictures-and-the-database-is-full-of-them": "whoever is refused and was changed is nearer",
    "nightly-copy-of-the-database-that-locks-what-it-copies": "a release of who waits for the lock is nearer",
    "metric-renamed-by-which-the-bidders-grow": "an autoscaler that complains long before is not led on to",
    "release-that-does-not-expect-a-slot-without-a-carrier": "words for people are believed to break a program",
    "flag-turned-on-for-everybody-at-once": "whom the provider of flags serves is not known",
    "largest-message-of-a-topic-lowered-to-what-is-usual": "which topic a program writes to, it says by another name",
    "chart-of-the-cache-throws-nothing-out-any-more": "a cache that is full for the first time fills for long",
    "role-of-the-account-of-tests-in-production": "that pods made anew read their account is not known",
    "quota-of-mails-of-the-day-used-up": "that others lack the same, untouched, says too little",
    "bank-does-not-answer-before-noon": "that others wait for the same bank, by other words, is not seen",
    "hub-of-the-roaming-sends-points-without-connectors": "what a flag has to do with what is not borne is not known",
    "machine-under-the-only-guard-dies": "a policy is believed where its guard's node is lost",
    "stream-of-order-events-is-not-trimmed-any-more": "who of several fills a store that all write to is not known",
    "reporter-of-policies-lists-all-pods-every-second": "who always called much, as far as is known, is not suspected",
    "table-of-connections-made-smaller-on-all-nodes": "what many complain of does not lead to the settings of nodes",
    "machines-renewed-with-another-version-of-control-groups": "an image of nodes leads to no program that is killed",
    "keys-star-on-the-shared-redis": "what one call costs a server is not known",
    "backup-that-locks-the-tables-and-stays": "what a backup does to whom it copies is not known",
    "stream-of-the-beds-refuses-what-is-new": "a release of who is refused is nearer than the room that was cut",
    "settlement-every-minute-on-top-of-itself": "that a schedule is each minute now, and runs overlap, says too little",
    "fares-cache-told-never-to-forget": "that a store is full is said by the alert alone",
    "issuer-whose-solver-nobody-answers": "an Ingress that is named was annotated just before",
    "snapshots-each-five-minutes-and-none-goes": "whose discs a recurring job fills is not known",
    "tariffs-ask-the-calendar-for-every-quarter-hour": "a new image of a client is no burden to others",
    "one-answer-to-a-million-readers": "a new image of a client is no burden to others",
    "balance-answers-with-a-field-its-callers-do-not-know": "of two new versions the one of who fails is preferred",
    "pool-of-the-databases-moved-to-slow-disks": "whose volumes lie in a pool of disks is not known",
    "nightly-forecast-made-more-important-than-the-exchange": "whose pods a Job that was not told takes is not known",
    "five-hundred-finished-runs-kept": "that kept Jobs count against a quota is not known",
    "exams-saved-each-two-seconds-once-they-open": "what is asked more often waits until somebody comes",
    "each-reading-an-object-of-its-own": "who makes the most objects is not counted without calls",
    "archive-of-the-meters-with-the-keys-of-the-staging": "what archives a log of which a disk fills up is not known",
    "streams-that-are-counted-under-another-name": "a setting of what is called, just before, is nearer",
    "tiles-of-the-radar-that-never-close-what-they-open": "that a release leaks is not told without a word",
    "odds-that-move-while-you-look": "which of its client's flags asks more of a server is not known",
    "counts-of-the-shelves-that-are-kept-for-ever": "a new variable of who fails is nearer than its release",
    "threshold-of-the-tiles-with-a-zero-too-many": "that work is not done in time says not who works it off",
    "agents-of-the-network-that-forget-who-talks": "that connections are reset leads to a release of who complains",
    "logs-kept-on-the-node-until-they-are-sent": "which agent fills the disk of its node is not known",
    "anchor-of-trust-replaced-at-once": "whom a mesh has its pods trust is not known",
    "way-out-to-the-dish-that-was-tidied-away": "that a way out is missed with the next connection is not known",
}
"""By name: what is not known of these yet, so that they are wrong."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.xfail(strict=True, reason=KNOWN[n])) if n in KNOWN else n for n in cases()],
)
def test_the_culprit_leads(name: str) -> None:
    found = told(cases()[name])
    leader = found.ranking.suspects[0]
    if found.has_culprit:
        assert found.rank == 1, f"{found.why} Before it: {leader.change.summary}"
    else:
        assert leader.probability <= BELIEVED, f"{found.why} Believed: {leader.change.summary}"


def test_what_is_known_to_be_wrong_is_in_the_table() -> None:
    assert KNOWN.keys() <= cases().keys()
