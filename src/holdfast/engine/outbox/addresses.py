"""The test for public IP addresses, by IANA's registries of special-purpose addresses.

All addresses in these registries are refused, also reachable ones, for no receiver of messages uses them.
Addresses that IANA has not assigned are refused too.
"""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_IPV4 = """
    0.0.0.0/8           this network
    10.0.0.0/8          private
    100.64.0.0/10       behind a carrier's NAT; a cloud's metadata
    127.0.0.0/8         this machine
    168.63.129.16/32    a cloud's inside, though the address is a public one
    169.254.0.0/16      this link; metadata of most clouds
    172.16.0.0/12       private
    192.0.0.0/24        protocols; a cloud's metadata
    192.0.2.0/24        examples
    192.31.196.0/24     name servers for private addresses
    192.52.193.0/24     relays of multicast
    192.88.99.0/24      relays of 6to4
    192.168.0.0/16      private
    192.175.48.0/24     name servers for private addresses
    198.18.0.0/15       benchmarks
    198.51.100.0/24     examples
    203.0.113.0/24      examples
    224.0.0.0/4         multicast
    240.0.0.0/4         reserved; broadcast
"""

# No address outside of 2000::/3 is public: ::1, ::ffff:0:0/96 and 64:ff9b::/96, which hold an IPv4 address,
# 100::/64, 5f00::/16, fc00::/7, fe80::/10, fec0::/10, ff00::/8.
_IPV6_PUBLIC = ipaddress.IPv6Network("2000::/3")

_IPV6 = """
    2001::/23           protocols; Teredo, which holds an IPv4 address; benchmarks; ORCHID
    2001:db8::/32       examples
    2002::/16           6to4, which holds an IPv4 address
    2620:4f:8000::/48   name servers for private addresses
    3ffe::/16           given back
    3fff::/20           examples
"""

# ISATAP, under any prefix: the lower half begins with one of these, followed by an IPv4 address.
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)


def _networks(listed: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(ipaddress.ip_network(line.split()[0]) for line in listed.strip().splitlines())


_SPECIAL = _networks(_IPV4) + _networks(_IPV6)


def is_public(address: Address) -> bool:
    """Return True for a public address: not private, not this machine, and none that contains another
    address.
    """
    if isinstance(address, ipaddress.IPv6Address) and (
        address not in _IPV6_PUBLIC or int(address) >> 32 & 0xFFFF_FFFF in _ISATAP
    ):
        return False
    # Python's own list is checked too: it may be newer.
    return address.is_global and not any(address in network for network in _SPECIAL)
