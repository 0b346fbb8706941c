"""Which proxy leads to a URL, by the variables that other programs read: http_proxy, https_proxy, all_proxy, no_proxy.

aiohttp would read them by itself, and the passwords in ~/.netrc with them, which are nobody's for registries.
"""

from __future__ import annotations

from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from hai.client.connection.transport import on_loopback


def proxy_to(url: str) -> str | None:
    """None: there is none. Our own loopback needs none; of those that speak no HTTP (SOCKS) none is used."""
    parts = urlsplit(url)
    if on_loopback(f"{parts.hostname}:0") or proxy_bypass(parts.netloc):
        return None
    known = getproxies_environment()
    found = known.get(parts.scheme) or known.get("all") or ""
    whole = found if "://" in found else f"http://{found}"
    return whole if found and whole.startswith(("http://", "https://")) else None
