"""Selects the proxy for a URL from the usual variables: http_proxy, https_proxy, all_proxy, no_proxy.

aiohttp's own support would also read passwords from ~/.netrc, which are not meant for registries.
"""

from __future__ import annotations

from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from hai.client.connection.transport import on_loopback


def proxy_to(url: str) -> str | None:
    """Returns the proxy of a URL. None for loopback addresses, and for proxies that do not speak HTTP (SOCKS)."""
    parts = urlsplit(url)
    if on_loopback(f"{parts.hostname}:0") or proxy_bypass(parts.netloc):
        return None
    proxies = getproxies_environment()
    found = proxies.get(parts.scheme) or proxies.get("all") or ""
    url_found = found if "://" in found else f"http://{found}"
    return url_found if found and url_found.startswith(("http://", "https://")) else None
