"""What programs say of their own cause, whatever they are written in, and which changes that leads to.

The words are in said.py; causes.py has those of Kubernetes itself, and in which order they count.
"""

from __future__ import annotations

import re

from app.core.edges import said
from app.core.edges.leads import (
    ADMISSION,
    CLAIMS,
    ON_NODES,
    Cause,
    any_of,
    certifies,
    fills_volumes,
    is_a,
    is_custom_kind,
    limits_egress,
    makes_nodes,
    meshes,
    provides_volumes,
    says_who,
    serves_names,
    sets_parts,
    sets_words,
    trusts,
    tunes_kernel,
    writes,
)
from app.core.entities import ACCESS

NAMES = Cause(
    "a name that is not resolved",
    said.NO_NAME,
    any_of(
        is_a("Service"),
        limits_egress,
        ON_NODES,
        serves_names,
        writes("env", "envFrom", "args", "command", "dnsPolicy", "dnsConfig", "hostNetwork"),
    ),
)
TRUST = Cause(
    "a certificate that is not trusted",
    said.NOT_TRUSTED,
    any_of(
        trusts,
        sets_words,
        says_who,
        is_a(*ADMISSION),
        writes("env", "envFrom", "args", "command", "volumes", "volumeMounts"),
    ),
    few=False,
)
CREDENTIALS = Cause(
    "who is not let in",
    said.NOT_LET_IN,
    any_of(
        is_a("Secret", "ServiceAccount", *ACCESS),
        sets_words,
        says_who,
        writes("env", "envFrom", "args", "command", "volumes", "volumeMounts", "serviceAccountName"),
    ),
    few=False,
)
TURNED_AWAY = Cause(
    "whom a server does not let in",
    said.TURNED_AWAY,
    any_of(CREDENTIALS.leads, writes("image")),
    few=False,
)
"""By which rules, its program says itself."""
DISK = Cause(
    "a disk that is full",
    said.DISK_FULL,
    any_of(
        fills_volumes,
        is_a("StorageClass", "ConfigMap", "Node", "DaemonSet"),
        is_custom_kind,
        writes(
            "image", "env", "envFrom", "args", "command", "volumes", "volumeClaimTemplates", "resources", "replicas"
        ),
    ),
    few=False,
)
SCHEMA = Cause(
    "a database that has other tables than is asked for",
    said.OTHER_TABLES,
    any_of(is_a("Job", "CronJob"), is_custom_kind, writes("image", "env", "args", "command")),
)
EXHAUSTED = Cause(
    "what a process may have, and gives nothing back of",
    said.USED_BY_ONE,
    any_of(
        ON_NODES,
        makes_nodes,
        tunes_kernel,
        is_a("MutatingWebhookConfiguration"),
        writes("image", "env", "envFrom", "args", "command", "resources", "securityContext"),
    ),
    few=False,
)
UNACKNOWLEDGED = Cause(
    "who reads does not say that it is done",
    said.UNACKNOWLEDGED,
    any_of(
        is_a("ConfigMap", "Secret"),
        writes("image", "env", "envFrom", "args", "command", "resources", "replicas"),
    ),
    few=False,
)
KEPT_IN = Cause(
    "a mesh that lets nobody out to what it does not know",
    said.KEPT_IN,
    any_of(limits_egress, is_custom_kind, meshes, is_a("Service")),
)
TRACKED = Cause(
    "connections of which a node keeps no more",
    said.TRACKED,
    any_of(
        ON_NODES,
        makes_nodes,
        is_custom_kind,
        writes("image", "env", "envFrom", "args", "command", "replicas", "hostNetwork"),
    ),
    few=False,
)
PROTOCOL = Cause(
    "two that do not speak alike",
    said.OTHER_PROTOCOL,
    any_of(
        is_a("Secret", "Service", "Ingress", *ADMISSION),
        certifies,
        sets_words,
        is_custom_kind,
        writes("image", "env", "envFrom", "args", "command", "volumes", "volumeMounts", "annotations", "ports"),
    ),
    few=False,
)
KEPT = Cause(
    "a file that may not be written",
    said.FILE_KEPT,
    any_of(
        is_a(*CLAIMS, "Node", "DaemonSet", "Namespace", "MutatingWebhookConfiguration", "ConfigMap", "Secret"),
        provides_volumes,
        is_custom_kind,
        writes("image", "securityContext", "volumes", "volumeMounts", "command", "args", "env", "envFrom"),
    ),
    few=False,
)
PART = Cause(
    "a part that a program lacks",
    said.NO_PART,
    any_of(
        is_a("Node", "MutatingWebhookConfiguration"),
        sets_parts,
        makes_nodes,
        is_custom_kind,
        writes("image", "command", "args", "env", "envFrom", "volumes", "volumeMounts", "initContainers"),
    ),
    few=False,
)
OPTION = Cause(
    "an option that a program does not take",
    said.NO_OPTION,
    any_of(
        is_a("MutatingWebhookConfiguration"),
        sets_words,
        is_custom_kind,
        writes("image", "command", "args", "env", "envFrom"),
    ),
    few=False,
)
SETTING = Cause(
    "a setting that a program is not told",
    said.NO_SETTING,
    any_of(
        is_a("ConfigMap", "Secret", "MutatingWebhookConfiguration"),
        is_custom_kind,
        writes("image", "command", "args", "env", "envFrom", "volumes", "volumeMounts"),
    ),
    few=False,
)
UNREADABLE = Cause(
    "what another version wrote",
    said.UNREADABLE,
    any_of(is_a("Job", "CronJob"), is_custom_kind, writes("image", "env", "args", "command")),
)
UNFIT = Cause(
    "what does not have the form that is read",
    said.UNFIT,
    any_of(
        is_a("Job", "CronJob", "Secret"),
        is_custom_kind,
        sets_words,
        writes("image", "env", "envFrom", "args", "command"),
    ),
)
"""As https://pkg.go.dev/encoding/json , Jackson, Pydantic, Gson, serde, .NET, Avro and Protocol Buffers say that what
is read has other types than it is read for: what somebody sent, or a file of settings, but no number in one."""
USED_UP = Cause(
    "what was paid for and is used up",
    re.compile(
        r"(?:monthly|daily) (?:\w+ )?(?:quota|limit)|insufficient_quota|quota_exceeded|exceeded your (?:current )?quota"
        r"|(?:plan|subscription) (?:limit|quota|allows)|maximum credits exceeded|payment.required"
        r"|(?:account|subscription)\b.{0,40}\b(?:suspended|not paid)|unpaid invoice"
        r"|insufficient (?:credits?|balance)"
        r"|wraparound|must be vacuumed within|reached maximum value of sequence|failed to read auto-increment value"
        r"|integer out of range",
        re.IGNORECASE,
    ),
    any_of(
        is_a("Job", "CronJob", "HorizontalPodAutoscaler", "Secret", "ConfigMap"),
        writes("env", "envFrom", "args", "command", "replicas"),
    ),
    few=False,
)
"""As those say who sell calls: Stripe, SendGrid, OpenAI. It is the sum of a month, and no release of today's. So are
the numbers of a database's rows and transactions
(https://www.postgresql.org/docs/current/routine-vacuuming.html#VACUUM-FOR-WRAPAROUND)."""
FILE = Cause(
    "a file that is not there",
    said.NO_FILE,
    any_of(
        is_a("ConfigMap", "Secret", "ServiceAccount", "Namespace", "PersistentVolumeClaim", "Job", "CronJob"),
        is_a("MutatingWebhookConfiguration", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
        is_custom_kind,
        writes("image", "env", "envFrom", "args", "command", "volumes", "volumeMounts", "initContainers"),
    ),
    few=False,
)
"""Of another pod's making, too: what injects a container that would have written it."""
UNPARSED = Cause(
    "a configuration that cannot be parsed",
    said.UNPARSED,
    any_of(UNFIT.leads, writes("volumes", "volumeMounts")),
    few=False,
)
"""As nginx, HAProxy, Redis, Prometheus, Vector, Fluent Bit, and who uses https://pkg.go.dev/gopkg.in/yaml.v3 say it."""
