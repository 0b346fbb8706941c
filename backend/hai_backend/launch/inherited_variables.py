"""Which variables of the server reach tasks that run as processes of its machine; docs/operate.md has the same table.

A list of what is passed on, not of what is held back: nobody knows all that the shell exports from which somebody has
started the server. Its directory, prompt, virtual environment, agents and secrets are no business of any task.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

INHERITED: Mapping[str, tuple[str, ...]] = {
    "the account": ("HOME", "USER", "LOGNAME", "SHELL"),
    "where programs and libraries are found": ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    "temporary and cached files": (
        *("TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
        *("HF_HOME", "TORCH_HOME"),
    ),
    "language, time zone": ("LANG", "LANGUAGE", "LC_*", "TZ", "FAKETIME_*"),
    "the way out of the site": (
        *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy", "grpc_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    ),
    "GPUs and the network between nodes": ("CUDA_*", "NVIDIA_*", "NCCL_*", "GLOO_*", "UCX_*"),
}
"""Names, or patterns of names, by what they are for."""

_PATTERNS = tuple(pattern for patterns in INHERITED.values() for pattern in patterns)


def inherited(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of the server's variables that tasks get."""
    return {
        name: value
        for name, value in variables.items()
        if any(fnmatchcase(name, pattern) for pattern in _PATTERNS)
    }
