"""Finds and repairs problems in the caller's directory: broken environments, wrong modes, and leftovers.

A process that was killed leaves at most a directory in .building or .trash, a layer that no environment uses, or a
temporary file. No command lists these leftovers; `doctor --fix` deletes them.
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
from haienv.layers.gc import find_used_layers, move_unused_to_trash
from haienv.names import is_layer, is_name
from haienv.store.access import apply_visibility, is_layer_mode_correct, update_layer_mode
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
from haienv.store.registry import Environment, check_lock, find_current_parent, list_environments_of
from haienv.store.reverse_dependencies import (
    create_marks,
    list_existing_marks,
    list_needed_marks,
    remove_stale_marks,
)
from haienv.store.transaction import (
    TRAVERSABLE,
    active_builds,
    delete_tree,
    hold_lease,
    is_process_alive,
)
from haienv.store.untrusted_io import list_entries

_TEMPORARY = re.compile(
    rf"\.({re.escape(METADATA_FILE)}|{CURRENT_LINK}|{re.escape(IMAGE_METADATA_FILE)})\.[0-9a-f]{{8}}"
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem. If `repair` is None, a person must decide, and `hint` says what to do."""

    description: str
    path: str
    hint: str = ""
    repair: Callable[[], object] | None = None


def find_problems(home: Home) -> list[Problem]:
    """Return all problems in the caller's directory."""
    environments = [check_lock(each) for each in list_environments_of(home, home.user)]
    return [
        *_find_leftovers(home),
        *_find_half_written_files(home),
        *_find_unknown_directories(home),
        *(_broken_environment(each) for each in environments if each.fault),
        *(p for each in environments if each.is_ready for p in _find_unloadable_modules(each)),
        *_find_orphaned_layers(home),
        *_find_incomplete_prefixes(home),
        *_find_incomplete_images(home),
        *_find_wrong_marks(home),
        *_find_untraversable_directories(home),
        *_find_wrong_modes(home, environments),
        *_find_missing_parents(home, environments),
    ]


def repair(home: Home, problems: list[Problem]) -> list[Problem]:
    """Repair the problems that have a repair, and return these problems."""
    repaired = [each for each in problems if each.repair is not None]
    with hold_lease(home):
        for each in repaired:
            assert each.repair is not None
            each.repair()
        remove_stale_marks(home)  # the marks of layers that were just deleted
    return repaired


def _find_leftovers(home: Home) -> Iterator[Problem]:
    for kind in (BUILDING_DIR, TRASH_DIR):
        for entry in list_entries(home.user_dir / kind):
            path = Path(entry.path)
            if not is_process_alive(path):
                yield Problem("left over by a command that was killed", entry.path,
                              repair=partial(delete_tree, path))  # fmt: skip


def _find_half_written_files(home: Home) -> Iterator[Problem]:
    layers = (Path(entry.path) for entry in list_entries(home.user_dir / LAYERS_DIR))
    for folder in (*_list_environment_directories(home), *layers):
        for entry in list_entries(folder):
            if _TEMPORARY.fullmatch(entry.name):
                yield Problem("half written by a command that was killed", entry.path,
                              repair=partial(Path(entry.path).unlink, missing_ok=True))  # fmt: skip


def _list_environment_directories(home: Home) -> list[Path]:
    return [
        Path(entry.path)
        for entry in list_entries(home.user_dir)
        if is_name(entry.name) and entry.is_dir(follow_symlinks=False)
    ]


def _find_unknown_directories(home: Home) -> Iterator[Problem]:
    for folder in _list_environment_directories(home):
        if not os.path.lexists(folder / METADATA_FILE):
            yield Problem("not an environment", str(folder), "move it away, or delete it")


def _broken_environment(environment: Environment) -> Problem:
    return Problem(
        f"{environment} is broken: {environment.fault}",
        str(environment.directory),
        f"haienv upgrade {environment.name} (-p PYTHON), or --rollback; or remove it and create it again",
    )


def _find_unloadable_modules(environment: Environment) -> Iterator[Problem]:
    for path in find_truncated_bytecode(environment.path / "bin" / "python", environment.sites[0]):
        yield Problem(f"{environment} cannot import a module: its bytecode is truncated, as by a full disk",
                      str(path), repair=partial(path.unlink, missing_ok=True))  # fmt: skip


def _find_orphaned_layers(home: Home) -> Iterator[Problem]:
    """Find layers that no environment has ever used: the command that built them was killed before its end."""
    if active_builds(home):
        return  # another command may be about to use its new layer
    used = find_used_layers(home)
    for entry in list_entries(home.user_dir / LAYERS_DIR):
        path = Path(entry.path)
        if is_layer(entry.name) and entry.name not in used and not (path / LAST_USED_FILE).exists():
            yield Problem(
                "a layer that no environment uses",
                entry.path,
                repair=partial(_delete_if_unused, home, path),
            )


def _delete_if_unused(home: Home, layer: Path) -> None:
    """Delete a layer, unless an environment has begun to use it since the layer was found."""
    for trashed in move_unused_to_trash(home, [layer.name]):
        delete_tree(trashed)


def _find_incomplete_prefixes(home: Home) -> Iterator[Problem]:
    """Find incomplete prefixes of conda. Prefixes are created in their final directory."""
    if active_builds(home):
        return  # another command may be creating one
    for entry in list_entries(home.user_dir / CONDA_DIR):
        if not (Path(entry.path) / DONE_MARK).exists():
            yield Problem("a prefix of conda that was not finished", entry.path,
                          repair=partial(delete_tree, Path(entry.path)))  # fmt: skip


def _find_incomplete_images(home: Home) -> Iterator[Problem]:
    for entry in list_entries(home.user_dir / LAYERS_DIR):
        image = Path(entry.path) / IMAGE_FILE
        if image.exists() and not (Path(entry.path) / IMAGE_METADATA_FILE).exists():
            yield Problem("an image that was not finished", str(image),
                          repair=partial(_delete_incomplete_image, image))  # fmt: skip


def _delete_incomplete_image(image: Path) -> None:
    if not image.with_name(IMAGE_METADATA_FILE).exists():
        image.unlink(missing_ok=True)


def _find_wrong_marks(home: Home) -> Iterator[Problem]:
    """Find superfluous and missing marks for layers of other users."""
    existing, needed = list_existing_marks(home), list_needed_marks(home)
    for mark in sorted(existing - needed):
        yield Problem("marks a layer of another user as needed, but nothing needs it", str(mark),
                      repair=partial(mark.unlink, missing_ok=True))  # fmt: skip
    for mark in sorted(needed - existing):
        parent = Parent("", mark.parent.name, mark.name, "")
        yield Problem("a layer of another user is needed, but not marked", str(mark),
                      repair=partial(create_marks, home, [parent]))  # fmt: skip


def _find_untraversable_directories(home: Home) -> Iterator[Problem]:
    for path in (home.user_dir, home.user_dir / LAYERS_DIR):
        if (mode := _read_mode(path)) != -1 and mode & TRAVERSABLE != TRAVERSABLE:
            yield Problem("other users cannot reach what they may see", str(path),
                          repair=partial(path.chmod, mode | TRAVERSABLE))  # fmt: skip


def _find_wrong_modes(home: Home, environments: list[Environment]) -> Iterator[Problem]:
    """Find environments and layers whose modes do not match their visibility."""
    for each in environments:
        if _read_mode(each.directory) != MODES[each.metadata.visibility]:
            yield Problem(
                f"{each} is {each.metadata.visibility}, but its mode is not",
                str(each.directory),
                repair=partial(apply_visibility, each.directory, each.metadata),
            )
        if each.layer_id and each.path.is_dir() and not is_layer_mode_correct(home, each.layer_id):
            yield Problem(
                f"the layer of {each} is not as visible as it should be",
                str(each.path),
                repair=partial(update_layer_mode, home, each.layer_id),
            )


def _read_mode(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        return -1


def _find_missing_parents(home: Home, environments: list[Environment]) -> Iterator[Problem]:
    """Find environments whose parent no longer exists under its name."""
    for each in environments:
        parent = find_current_parent(home, each)
        if each.layer and each.layer.parents and parent is None:
            yield Problem(f"the parent of {each} was removed or renamed", str(each.directory),
                          "it still works, but upgrade cannot follow a missing parent")  # fmt: skip
