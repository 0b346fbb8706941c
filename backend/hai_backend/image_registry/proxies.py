"""Selects the proxy for a URL from the environment variables http_proxy, https_proxy, all_proxy and no_proxy.

The support of aiohttp for these variables also reads passwords from ~/.netrc, which are not meant for registries. This
module does not import aiohttp, because the import would delay the start of a server.
"""

from __future__ import annotations

from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from hai.client.connection.transport import is_loopback


def proxy_to(url: str) -> str | None:
    """Return the proxy for a URL. Return None for loopback addresses, and if the proxy does not speak HTTP (SOCKS)."""
    parts = urlsplit(url)
    if is_loopback(f"{parts.hostname}:0") or proxy_bypass(parts.netloc):
        return None
    proxies = getproxies_environment()
    setting = proxies.get(parts.scheme) or proxies.get("all") or ""
    proxy = setting if "://" in setting else f"http://{setting}"
    return proxy if setting and proxy.startswith(("http://", "https://")) else None
