"""Networks as people write them. One of IPv4 may be written, and met, as one of IPv6 (``::ffff:192.0.2.1``: RFC 4291,
2.5.5.2), as a socket has it that is for both: they are the same here."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network

Network = IPv4Network | IPv6Network
_MAPPED_BITS = 96


def network(written: str) -> Network:
    """An address or a network; of IPv4 where it is one written as of IPv6. Raises ValueError."""
    found = ip_network(written)
    mapped = found.network_address.ipv4_mapped if isinstance(found, IPv6Network) else None
    if mapped is None or found.prefixlen < _MAPPED_BITS:
        return found
    return IPv4Network((mapped, found.prefixlen - _MAPPED_BITS))


def forwarders(written: str) -> list[str]:
    """Who may say of a request where it comes from, for uvicorn: addresses and networks with commas between, or ``*``
    for anybody. Of IPv4 in both ways that they may be met. Raises ValueError, in words."""
    if written.strip() == "*":
        return ["*"]
    found = list[str]()
    for one in filter(None, (each.strip() for each in written.split(","))):
        try:
            named = network(one)
        except ValueError as error:
            raise ValueError(f"{error}: write addresses like 10.0.3.7, and networks like 10.0.3.0/24") from None
        found.append(str(named))
        if isinstance(named, IPv4Network):
            found.append(f"::ffff:{named.network_address}/{named.prefixlen + _MAPPED_BITS}")
    return found
