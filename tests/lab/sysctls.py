"""Settings of the kernel that a pod asks for: a kubelet takes on only who asks for safe ones, unless it is told more.

Its words and its list: pkg/kubelet/sysctl/allowlist.go and safe_sysctls.go of Kubernetes 1.36.
"""

from __future__ import annotations

from tests.lab.api import Json

FORBIDDEN = "SysctlForbidden"
SAFE = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)


def forbidden(pod: Json) -> str:
    """Why a kubelet does not take a pod on for what it asks of the kernel; or ""."""
    asked = pod["spec"].get("securityContext", {}).get("sysctls", ())
    found = next((one["name"] for one in asked if one["name"] not in SAFE), "")
    return found and f'forbidden sysctl: "{found}" not allowlisted'
