"""Whether a connection may be unencrypted: only to this machine."""

import ipaddress

from truelog.doctor.result import Area, Result


def is_this_machine(host: str) -> bool:
    """Whether a host name or an address is this machine's own."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.startswith("/")  # a socket in a folder


def encryption(area: Area, host: str, *, encrypted: bool, cure: str) -> Result:
    """The result for a connection to this host."""
    if encrypted:
        return area.fine("encryption", f"TLS to {host}")
    if is_this_machine(host):
        return area.fine("encryption", f"none, and none is needed: {host} is this machine")
    return area.failed("encryption", f"passwords and events go to {host} unencrypted", cure)
