"""Names under `localhost` mean the loopback (RFC 6761, section 6.3); not every resolver knows it.

Python imports this module by itself when its folder is on PYTHONPATH.
"""

import socket

_resolve = socket.getaddrinfo


def _getaddrinfo(host, *arguments, **options):
    if isinstance(host, str) and host.endswith(".localhost"):
        host = "127.0.0.1"
    return _resolve(host, *arguments, **options)


socket.getaddrinfo = _getaddrinfo
