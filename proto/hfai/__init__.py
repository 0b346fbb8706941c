"""Compatibility with programs for HAI, which import `hfai`. `hfai.client` has the calls of training programs.

The calls are those of `hai.task`; new programs use `import hai`. If an environment contains its own `hfai`, that is
used instead.
"""

from __future__ import annotations

from hfai import client as client

_ELSEWHERE = {
    "checkpoint": "use hai.task.checkpoint, or torch.save and hai.checkpoint_saved()",
    "datasets": "read the files yourself: `hai dataset list` shows where they are",
    "distributed": "use torch.distributed, whose variables are set",
    "nn": "use torch.nn",
    "pl": "use hai.task.integrations.lightning",
}
"""Parts of HAI that are not published; what does the same."""


def __getattr__(name: str) -> object:
    if name in _ELSEWHERE:
        raise ImportError(f"hfai.{name} is no part of HAI Platform: {_ELSEWHERE[name]}")
    raise AttributeError(f"module 'hfai' has no attribute {name!r}")
