"""Finds and repairs what is broken or left over in the caller's directory.

A process that was killed leaves at most a directory in .building or .trash, a layer that no environment uses, or a
temporary file. None of them is ever listed; `doctor --fix` deletes them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from haienv.backends.conda import DONE_MARK
from haienv.layers.bytecode import find_truncated_bytecode
from haienv.layers.gc import trash_unused, used_layers
from haienv.names import is_layer, is_name
from haienv.store.access import apply_visibility, layer_mode_is_correct, update_layer_mode
from haienv.store.layout import (
    BUILDING_DIR,
    CONDA_DIR,
    CURRENT_LINK,
    IMAGE_FILE,
    IMAGE_METADATA_FILE,
    LAST_USED_FILE,
    LAYERS_DIR,
    METADATA_FILE,
    TRASH_DIR,
    Home,
)
from haienv.store.records import MODES, Parent
from haienv.store.registry import Environment, current_parent, list_owner, with_lock_checked
from haienv.store.reverse_dependencies import (
    create_marks,
    existing_marks,
    needed_marks,
    remove_stale_marks,
)
from haienv.store.transaction import (
    TRAVERSABLE,
    active_builds,
    committing,
    delete_tree,
    is_process_alive,
)
from haienv.store.untrusted_io import entries

_TEMPORARY = re.compile(
    rf"\.({re.escape(METADATA_FILE)}|{CURRENT_LINK}|{re.escape(IMAGE_METADATA_FILE)})\.[0-9a-f]{{8}}"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem. `repair` is None if a person must decide; then `hint` says what to do."""

    problem: str
    path: str
    hint: str = ""
    repair: Callable[[], object] | None = None


def findings(home: Home) -> list[Finding]:
    """All problems in the caller's directory."""
    environments = [with_lock_checked(each) for each in list_owner(home, home.user)]
    return [
        *_leftovers(home),
        *_half_written(home),
        *_unknown_directories(home),
        *(f for each in environments if each.fault for f in _broken(each)),
        *(f for each in environments if each.ready for f in _truncated_bytecode(each)),
        *_orphaned_layers(home),
        *_incomplete_prefixes(home),
        *_incomplete_images(home),
        *_wrong_marks(home),
        *_untraversable(home),
        *_wrong_modes(home, environments),
        *_old_parents(home, environments),
    ]


def repair(home: Home, found: list[Finding]) -> list[Finding]:
    """Repair what can be repaired; returns these findings."""
    repaired = [each for each in found if each.repair is not None]
    with committing(home):
        for each in repaired:
            assert each.repair is not None
            each.repair()
        remove_stale_marks(home)  # of layers that were just deleted
    return repaired


def _leftovers(home: Home) -> Iterator[Finding]:
    for kind in (BUILDING_DIR, TRASH_DIR):
        for entry in entries(home.user_dir / kind):
            if not is_process_alive(Path(entry.path)):
                path = Path(entry.path)
                yield Finding(
                    "left over by a command that was killed",
                    entry.path,
                    repair=partial(delete_tree, path),
                )


def _half_written(home: Home) -> Iterator[Finding]:
    for folder in (
        *_environment_directories(home),
        *(Path(e.path) for e in entries(home.user_dir / LAYERS_DIR)),
    ):
        for entry in entries(folder):
            if _TEMPORARY.fullmatch(entry.name):
                path = Path(entry.path)
                yield Finding(
                    "half written by a command that was killed",
                    entry.path,
                    repair=partial(path.unlink, missing_ok=True),
                )


def _environment_directories(home: Home) -> list[Path]:
    found = (
        e for e in entries(home.user_dir) if is_name(e.name) and e.is_dir(follow_symlinks=False)
    )
    return [Path(each.path) for each in found]


def _unknown_directories(home: Home) -> Iterator[Finding]:
    for folder in _environment_directories(home):
        if not os.path.lexists(folder / METADATA_FILE):
            yield Finding("not an environment", str(folder), "move it away, or delete it")


def _broken(each: Environment) -> Iterator[Finding]:
    yield Finding(
        f"{each} is broken: {each.fault}",
        str(each.directory),
        f"haienv upgrade {each.name} (-p PYTHON), or --rollback; or remove it and create it again",
    )


def _truncated_bytecode(each: Environment) -> Iterator[Finding]:
    for path in find_truncated_bytecode(each.path / "bin" / "python", each.sites[0]):
        yield Finding(f"{each} cannot import a module: its bytecode is truncated, as by a full disk",
                      str(path), repair=partial(path.unlink, missing_ok=True))  # fmt: skip


def _orphaned_layers(home: Home) -> Iterator[Finding]:
    """Layers that no environment has ever used: the command that built them was killed before its end."""
    if active_builds(home):
        return  # another command may be about to use it
    used = used_layers(home)
    for entry in entries(home.user_dir / LAYERS_DIR):
        path = Path(entry.path)
        if is_layer(entry.name) and entry.name not in used and not (path / LAST_USED_FILE).exists():
            yield Finding(
                "a layer that no environment uses",
                entry.path,
                repair=partial(_discard_unused, home, path),
            )


def _discard_unused(home: Home, layer: Path) -> None:
    """Delete a layer, unless it came into use since it was found."""
    for trashed in trash_unused(home, [layer.name]):
        delete_tree(trashed)


def _incomplete_prefixes(home: Home) -> Iterator[Finding]:
    """Incomplete prefixes of conda, which are created in their final directory."""
    if active_builds(home):
        return  # another command may be creating it
    for entry in entries(home.user_dir / CONDA_DIR):
        if not (Path(entry.path) / DONE_MARK).exists():
            yield Finding("a prefix of conda that was not finished", entry.path,
                          repair=partial(delete_tree, Path(entry.path)))  # fmt: skip


def _incomplete_images(home: Home) -> Iterator[Finding]:
    for entry in entries(home.user_dir / LAYERS_DIR):
        image = Path(entry.path) / IMAGE_FILE
        if image.exists() and not (Path(entry.path) / IMAGE_METADATA_FILE).exists():
            yield Finding("an image that was not finished", str(image),
                          repair=partial(_discard_image, image))  # fmt: skip


def _discard_image(image: Path) -> None:
    if not image.with_name(IMAGE_METADATA_FILE).exists():
        image.unlink(missing_ok=True)


def _wrong_marks(home: Home) -> Iterator[Finding]:
    """Marks for layers of other users that are superfluous or missing."""
    existing, needed = existing_marks(home), needed_marks(home)
    for mark in sorted(existing - needed):
        yield Finding("marks a layer of another user as needed, but nothing needs it", str(mark),
                      repair=partial(mark.unlink, missing_ok=True))  # fmt: skip
    for mark in sorted(needed - existing):
        parent = Parent("", mark.parent.name, mark.name, "")
        yield Finding("a layer of another user is needed, but not marked", str(mark),
                      repair=partial(create_marks, home, [parent]))  # fmt: skip


def _untraversable(home: Home) -> Iterator[Finding]:
    for path in (home.user_dir, home.user_dir / LAYERS_DIR):
        if (mode := _mode(path)) != -1 and mode & TRAVERSABLE != TRAVERSABLE:
            yield Finding("other users cannot reach what they may see", str(path),
                          repair=partial(path.chmod, mode | TRAVERSABLE))  # fmt: skip


def _wrong_modes(home: Home, environments: list[Environment]) -> Iterator[Finding]:
    for each in environments:
        if _mode(each.directory) != MODES[each.metadata.visibility]:
            yield Finding(
                f"{each} is {each.metadata.visibility}, but its mode is not",
                str(each.directory),
                repair=partial(apply_visibility, each.directory, each.metadata),
            )
        if each.layer_id and each.path.is_dir() and not layer_mode_is_correct(home, each.layer_id):
            yield Finding(
                f"the layer of {each} is not as visible as it should be",
                str(each.path),
                repair=partial(update_layer_mode, home, each.layer_id),
            )


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        return -1


def _old_parents(home: Home, environments: list[Environment]) -> Iterator[Finding]:
    for each in environments:
        parent = current_parent(home, each)
        if each.layer and each.layer.parents and parent is None:
            yield Finding(f"the parent of {each} was removed or renamed", str(each.directory),
                          "it still works, but upgrade cannot follow a missing parent")  # fmt: skip
