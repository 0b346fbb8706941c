"""Mount paths without mount namespaces: they are replaced by the directories behind them, wherever a pod names them.

A local process sees the machine's files. So each mountPath in command, args, values of variables and workingDir becomes
the directory of its volume: the longest path first, only whole path components, and not in the contents of files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hai_backend.testing.kube.body import Body


class Mounts:
    """What one container sees where."""

    def __init__(self, container: Body, volumes: Mapping[str, Path]) -> None:
        rows = container.get("volumeMounts") or []
        self._paths = {
            m["mountPath"].rstrip("/"): volumes[m["name"]] / m.get("subPath", "") for m in rows
        }
        longest_first = sorted((p for p in self._paths if p), key=len, reverse=True)
        names = "|".join(re.escape(p) for p in longest_first)
        self._pattern = re.compile(rf"(?<![\w./-])(?:{names})(?![\w.-])") if names else None

    def make(self) -> None:
        """Sub-paths that are not there yet become directories, as a kubelet does it."""
        for path in self._paths.values():
            if not path.exists():
                path.mkdir(parents=True)

    def real(self, text: str) -> str:
        """The text with every mount path replaced."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: str(self._paths[found[0]]).rstrip("/"), text)

    def real_all(self, texts: Sequence[str]) -> list[str]:
        return [self.real(text) for text in texts]
