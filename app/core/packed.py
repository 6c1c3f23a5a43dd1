"""An object's state in few bytes, for as long as the program runs."""

from __future__ import annotations

import orjson
import zstandard

from app.core.model import Object

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
A state is packed by what differs from it. Nothing of anybody's cluster is in it."""


class Packing:
    """Packs and unpacks states. Not thread-safe; what is packed is good for this version of the program alone."""

    def __init__(self) -> None:
        common = zstandard.ZstdCompressionDict(_COMMON, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        common.precompute_compress(level=3)
        self._compressor = zstandard.ZstdCompressor(dict_data=common, write_checksum=False, write_content_size=True)
        self._decompressor = zstandard.ZstdDecompressor(dict_data=common)

    def pack(self, state: Object) -> bytes:
        # Copied: the compressor's own buffer is allocated for the worst case and fragments the heap.
        return bytes(memoryview(self._compressor.compress(orjson.dumps(state))))

    def unpack(self, blob: bytes) -> Object:
        state: Object = orjson.loads(self._decompressor.decompress(blob))
        return state
