"""What is broken or left over in the caller's directory, and how it is mended.

A process that was killed leaves at most: a directory in .building or .trash, a layer that no environment ever had,
a file beside the one that it was to replace. None of them is ever listed; `doctor --fix` deletes them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from haienv.backends.conda import DONE
from haienv.layers.bytecode import cut_off
from haienv.layers.gc import take, used_layers
from haienv.names import is_layer, is_name
from haienv.store.access import is_open_as_it_should, open_layer, show
from haienv.store.layout import (
    BUILDING,
    CONDA,
    CURRENT,
    IMAGE,
    IMAGE_RECORD,
    LABEL,
    LAYERS,
    TRASH,
    USED,
    Home,
)
from haienv.store.records import MODES, Parent
from haienv.store.registry import Environment, compared, of_owner
from haienv.store.reverse_dependencies import forget, made, needed, tell
from haienv.store.transaction import WAY, alive, at_work, committing, delete
from haienv.store.untrusted_io import entries

_BESIDE = re.compile(rf"\.({re.escape(LABEL)}|{CURRENT}|{re.escape(IMAGE_RECORD)})\.[0-9a-f]{{8}}")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be. `mend` is None where a person must decide; `hint` says what."""

    what: str
    path: str
    hint: str = ""
    mend: Callable[[], object] | None = None


def findings(home: Home) -> list[Finding]:
    """Everything that is wrong, left over or odd in the caller's directory."""
    own = [compared(each) for each in of_owner(home, home.user)]
    return [
        *_remains(home),
        *_beside(home),
        *_strays(home),
        *(f for each in own if each.fault for f in _broken(each)),
        *(f for each in own if each.ready for f in _cut_off(each)),
        *_orphans(home),
        *_half_prefixes(home),
        *_half_images(home),
        *_uses(home),
        *_ways(home),
        *_modes(home, own),
        *_old_parents(home, own),
    ]


def mend(home: Home, found: list[Finding]) -> list[Finding]:
    """Mend what can be mended; what was."""
    mended = [each for each in found if each.mend is not None]
    with committing(home):
        for each in mended:
            assert each.mend is not None
            each.mend()
        forget(home)  # of layers that went just now
    return mended


def _remains(home: Home) -> Iterator[Finding]:
    for kind in (BUILDING, TRASH):
        for entry in entries(home.own / kind):
            if not alive(Path(entry.path)):
                path = Path(entry.path)
                yield Finding(
                    "left over by a command that was killed",
                    entry.path,
                    mend=partial(delete, path),
                )


def _beside(home: Home) -> Iterator[Finding]:
    for folder in (*_folders(home), *(Path(e.path) for e in entries(home.own / LAYERS))):
        for entry in entries(folder):
            if _BESIDE.fullmatch(entry.name):
                path = Path(entry.path)
                yield Finding(
                    "half written by a command that was killed",
                    entry.path,
                    mend=partial(path.unlink, missing_ok=True),
                )


def _folders(home: Home) -> list[Path]:
    found = (e for e in entries(home.own) if is_name(e.name) and e.is_dir(follow_symlinks=False))
    return [Path(each.path) for each in found]


def _strays(home: Home) -> Iterator[Finding]:
    for folder in _folders(home):
        if not os.path.lexists(folder / LABEL):
            yield Finding("not an environment", str(folder), "move it elsewhere, or delete it")


def _broken(each: Environment) -> Iterator[Finding]:
    yield Finding(
        f"{each} is broken: {each.fault}",
        str(each.directory),
        f"haienv upgrade {each.name} (-p PYTHON), or --rollback; or remove it and make it again",
    )


def _cut_off(each: Environment) -> Iterator[Finding]:
    for path in cut_off(each.path / "bin" / "python", each.sites[0]):
        yield Finding(f"{each} cannot import a module: its bytecode is cut off, as by a full disk",
                      str(path), mend=partial(path.unlink, missing_ok=True))  # fmt: skip


def _orphans(home: Home) -> Iterator[Finding]:
    """Layers that no environment ever had: made by a create that was killed just before its end."""
    if at_work(home):
        return  # somebody may be about to use it
    used = used_layers(home)
    for entry in entries(home.own / LAYERS):
        path = Path(entry.path)
        if is_layer(entry.name) and entry.name not in used and not (path / USED).exists():
            yield Finding(
                "a layer that no environment has",
                entry.path,
                mend=partial(_discard_unused, home, path),
            )


def _discard_unused(home: Home, layer: Path) -> None:
    """Somebody may have come to use it since."""
    for gone in take(home, [layer.name]):
        delete(gone)


def _half_prefixes(home: Home) -> Iterator[Finding]:
    """Of conda: made where they stay, so they may be half made."""
    if at_work(home):
        return  # somebody may be making it
    for entry in entries(home.own / CONDA):
        if not (Path(entry.path) / DONE).exists():
            yield Finding("a prefix of conda that was not finished", entry.path,
                          mend=partial(delete, Path(entry.path)))  # fmt: skip


def _half_images(home: Home) -> Iterator[Finding]:
    for entry in entries(home.own / LAYERS):
        image = Path(entry.path) / IMAGE
        if image.exists() and not (Path(entry.path) / IMAGE_RECORD).exists():
            yield Finding("an image that was not finished", str(image),
                          mend=partial(_discard_half, image))  # fmt: skip


def _discard_half(image: Path) -> None:
    if not image.with_name(IMAGE_RECORD).exists():
        image.unlink(missing_ok=True)


def _uses(home: Home) -> Iterator[Finding]:
    """What tells others that their layers are needed."""
    there, wanted = made(home), needed(home)
    for mark in sorted(there - wanted):
        yield Finding("says that a layer of another is needed, and none needs it", str(mark),
                      mend=partial(mark.unlink, missing_ok=True))  # fmt: skip
    for mark in sorted(wanted - there):
        parent = Parent("", mark.parent.name, mark.name, "")
        yield Finding("does not say that a layer of another is needed", str(mark),
                      mend=partial(tell, home, [parent]))  # fmt: skip


def _ways(home: Home) -> Iterator[Finding]:
    for path in (home.own, home.own / LAYERS):
        if (mode := _mode(path)) != -1 and mode & WAY != WAY:
            yield Finding("others cannot pass to what they may see", str(path),
                          mend=partial(path.chmod, mode | WAY))  # fmt: skip


def _modes(home: Home, own: list[Environment]) -> Iterator[Finding]:
    for each in own:
        if _mode(each.directory) != MODES[each.label.visibility]:
            yield Finding(
                f"{each} is {each.label.visibility}, but its mode is not",
                str(each.directory),
                mend=partial(show, each.directory, each.label),
            )
        if each.layer_id and each.path.is_dir() and not is_open_as_it_should(home, each.layer_id):
            yield Finding(
                f"the layer of {each} is not as visible as it should be",
                str(each.path),
                mend=partial(open_layer, home, each.layer_id),
            )


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        return -1


def _old_parents(home: Home, own: list[Environment]) -> Iterator[Finding]:
    from haienv.store.registry import parent_of

    for each in own:
        parent = parent_of(home, each)
        if each.layer and each.layer.parents and parent is None:
            yield Finding(f"the parent of {each} has no name any more", str(each.directory),
                          "it works on; upgrade cannot follow a parent that is gone")  # fmt: skip
