"""HAI's `hfai`, for programs that were written for it: `hfai.client` has the calls of the training side.

They are those of `hai.task`, and new programs say `import hai`. An `hfai` that an environment brings itself goes first.
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
