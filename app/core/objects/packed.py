"""States of objects in few bytes, for as long as the program runs: each packed by what differs from one like it."""

from __future__ import annotations

from collections import Counter

import orjson
from zstandard import DICT_TYPE_RAWCONTENT, ZstdCompressionDict, ZstdCompressor, ZstdDecompressor

from app.core.model import Object

ALIKE = 16
"""So many states of a shape, and the next is what those after it are packed against: what is rare is not worth it."""
MODELS = 64
"""At the most; each costs 100 KB (measured)."""
_LARGEST = 16 << 10
"""Bytes of JSON of the largest state that becomes a model."""
_SHAPES = 1_000
"""So many are counted at a time."""
_LEVEL = 3
"""zstd's default."""

_COMMON = b"""{"binaryData":{},"rules":[{"apiGroups":[""],"resources":["pods","services","configmaps"],"verbs":[\
"create","delete","get","list","patch","update","watch"]}],\
"subjects":[{"kind":"ServiceAccount","name":"default","namespace":"\
"}],"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":""},"immutable":true,"type":"Opaque"\
,"metadata":{"name":"","namespace":"default","labels":{"app":"","k8s-app":"","version":"v1","helm.sh/chart":"",\
"app.kubernetes.io/name":"","app.kubernetes.io/instance":"","app.kubernetes.io/version":"",\
"app.kubernetes.io/component":"","app.kubernetes.io/part-of":"","app.kubernetes.io/managed-by":"Helm"},"annotations":{\
"meta.helm.sh/release-name":"","meta.helm.sh/release-namespace":"","prometheus.io/scrape":"true","prometheus.io/port":\
"","kubectl.kubernetes.io/restartedAt":"2026-"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":\
"","uid":"","controller":true,"blockOwnerDeletion":true}],"finalizers":["kubernetes.io/pvc-protection"]},"spec":{\
"replicas":1,"minReadySeconds":0,"progressDeadlineSeconds":600,"revisionHistoryLimit":10,"selector":{"matchLabels":{\
"app":""}},"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"}},"template":{\
"metadata":{"labels":{"app":""}},"spec":{"initContainers":[],"containers":[{"name":"app","image":"registry.io/",\
"imagePullPolicy":"IfNotPresent","command":["/bin/sh","-c"],"args":["--"],"env":[{"name":"","value":""},{"name":"",\
"valueFrom":{"secretKeyRef":{"name":"","key":""}}},{"name":"","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":\
"metadata.namespace"}}}],"envFrom":[{"configMapRef":{"name":""}}],"ports":[{"name":"http","containerPort":8080,\
"protocol":"TCP"}],"resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"cpu":"1","memory":"256Mi"}},\
"livenessProbe":{"httpGet":{"path":"/healthz","port":8080,"scheme":"HTTP"},"initialDelaySeconds":10,"periodSeconds":10\
,"timeoutSeconds":1,"successThreshold":1,"failureThreshold":3},"readinessProbe":{"httpGet":{"path":"/healthz","port":\
8080,"scheme":"HTTP"},"periodSeconds":10,"timeoutSeconds":1,"successThreshold":1,"failureThreshold":3},"volumeMounts"\
:[{"name":"config","mountPath":"/etc/"},{"name":"kube-api-access-","readOnly":true,"mountPath":\
"/var/run/secrets/kubernetes.io/serviceaccount"}],"terminationMessagePath":"/dev/termination-log",\
"terminationMessagePolicy":"File","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},\
"readOnlyRootFilesystem":true,"runAsNonRoot":true}}],"volumes":[{"name":"config","configMap":{"name":"","defaultMode":\
420}},{"name":"kube-api-access-","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":\
"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},{"downwardAPI":{"items"\
:[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}],"defaultMode":420}}],\
"restartPolicy":"Always","serviceAccountName":"default","serviceAccount":"default","schedulerName":"default-scheduler"\
,"securityContext":{},"terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","nodeName":"","priority":0,\
"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority","tolerations":[{"key":\
"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},{"key":\
"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]}}},"data":{}}"""
"""What objects have in common, as the API server fills a Deployment and its pods: Kubernetes' own fields and defaults.
The first model, for what has none of its own. Nothing of anybody's cluster is in it."""

_Shape = tuple[str, ...]


class _Codec:
    """zstd against a model: what is packed is what differs from it."""

    def __init__(self, model: bytes) -> None:
        known = ZstdCompressionDict(model, dict_type=DICT_TYPE_RAWCONTENT)
        known.precompute_compress(level=_LEVEL)
        self.pack = ZstdCompressor(dict_data=known, write_checksum=False, write_content_size=True).compress
        self.unpack = ZstdDecompressor(dict_data=known).decompress


class Packing:
    """Packs states, and unpacks what it packed itself. Not thread-safe.

    The first byte of what is packed says which model it needs; 0 is what all objects have in common.
    """

    def __init__(self) -> None:
        self._codecs = [_Codec(_COMMON)]
        self._models: dict[_Shape, int] = {}
        self._counts = Counter[_Shape]()

    def pack(self, state: Object) -> bytes:
        raw = orjson.dumps(state)
        model = self._model(_shape(state), raw)
        # Joined, so copied: the compressor's own buffer is allocated for the worst case and fragments the heap.
        return b"".join((model.to_bytes(), self._codecs[model].pack(raw)))

    def unpack(self, blob: bytes) -> Object:
        state: Object = orjson.loads(self._codecs[blob[0]].unpack(memoryview(blob)[1:]))
        return state

    def _model(self, shape: _Shape, raw: bytes) -> int:
        """Which model a state of that shape is packed against; it may become one."""
        known = self._models.get(shape, 0)
        if known or len(self._codecs) > MODELS or len(raw) > _LARGEST:
            return known
        self._counts[shape] += 1
        if self._counts[shape] > ALIKE:
            self._models[shape] = known = len(self._codecs)
            self._codecs.append(_Codec(raw))
        elif len(self._counts) > _SHAPES:
            self._counts.clear()
        return known


def _shape(state: Object) -> _Shape:
    """The names of an object's parts, and of those of its spec: of one kind, mostly."""
    spec = state.get("spec")
    return (*state, *spec) if isinstance(spec, dict) else (*state,)
