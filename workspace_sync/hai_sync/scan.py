"""Reads a directory into a tree, without following links or opening files.

A path with an unchanged fingerprint keeps its entry from the index. Other files stay unhashed until the plan needs
their content: for a file that exists on one side only, its name and size suffice.
"""

from __future__ import annotations

import os
import stat
import time
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hai_sync.core import names
from hai_sync.core.entry import DIRECTORY, Entry, Kind, Tree, ancestors, is_within
from hai_sync.core.ignore import RULE_FILES, Ignore, RuleSet, default_rules, forced_rules
from hai_sync.core.links import Links, is_outward, skip_reason
from hai_sync.errors import CHANGES_WHILE_READ, NOT_FOUND
from hai_sync.file_fingerprint import Fingerprint, fingerprint, is_racy
from hai_sync.prefetch_walk import PrefetchWalk

# file types of st_mode
_REGULAR, _LINK, _FOLDER = stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR


class ScanCancelled(Exception):
    """The caller no longer waits for the scan."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which paths are ignored in addition to the rules of ignore files, and how outward links are treated."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    files: bool = True  # whether .gitignore, .haiignore and .hfignore are read
    links: Links = Links.AUTO  # how links that lead out of the workspace are treated

    @property
    def is_special(self) -> bool:
        """Whether the filter ignores other paths than the default one."""
        return bool(self.include or self.exclude or not self.files)

    def cache_key(self) -> str:
        """Return a text that is equal for equal filters."""
        return repr((self.include, self.exclude, self.files, self.links.value))


@dataclass(slots=True)
class ScanCache:
    """The result of the last scan, and how the next scan uses it."""

    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)
    entries: Callable[[], Mapping[str, Entry]] = dict  # called only if a path has changed
    scanned_at_ns: int = 0
    same_filter: bool = True  # whether the last scan used the same filter
    verify: bool = False  # whether to read files with unchanged fingerprints too
    cancelled: Callable[[], bool] = lambda: False  # called before each directory
    base: Callable[[], Tree] = dict  # the tree of the last sync; called only if a link leads out


class OutwardLink(NamedTuple):
    """A link that leads out of the workspace."""

    target: str
    fingerprint: Fingerprint


@dataclass(slots=True)
class Scan:
    """The state of a local tree."""

    root: Path
    scanned_at_ns: int
    fingerprints: dict[str, Fingerprint] = field(default_factory=dict)
    changed: dict[str, Entry] = field(default_factory=dict)  # entries that differ from the cache
    removed: set[str] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)
    # removed from here once they are resolved
    outward_links: dict[str, OutwardLink] = field(default_factory=dict)
    # outward links that are not synced, with the reason
    skipped: dict[str, str] = field(default_factory=dict)
    # links whose target is synced instead, with its path
    copied_links: dict[str, str] = field(default_factory=dict)
    ignored_paths: set[str] = field(default_factory=set)  # directories end with a slash
    rule_sets: dict[str, RuleSet] = field(default_factory=dict)
    tree: dict[str, Entry] = field(default_factory=dict)
    previous: Scan | None = None  # the scan that a rescan has updated

    @property
    def ignored(self) -> int:
        """The number of ignored paths. Paths below an ignored directory do not count."""
        return len(self.ignored_paths)

    @property
    def unchanged(self) -> bool:
        """Whether all paths are as in the cache."""
        return not (self.changed or self.removed)

    def resolve_outward_links(self, links: Links, on_cluster: Set[str]) -> None:
        """Keep or skip each outward link. `on_cluster` has the link targets that exist on the cluster."""
        for path, link in self.outward_links.items():
            if reason := skip_reason(links, link.target, link.target in on_cluster):
                self.skipped[path] = reason
                self.changed[path] = Entry(Kind.PROBLEM, target=reason)
            else:
                self.fingerprints[path] = link.fingerprint
                self.changed[path] = Entry(Kind.SYMLINK, target=link.target)
                self.removed.discard(path)
            self.tree[path] = self.changed[path]
        self.outward_links.clear()

    def mark_removed(self, path: str) -> None:
        """Record that a path was removed during the scan."""
        self.fingerprints.pop(path, None)
        self.changed.pop(path, None)
        self.tree.pop(path, None)
        self.removed.add(path)

    def add_problem(self, path: str, reason: str) -> None:
        """Record why a path cannot be synced."""
        self.problems[path] = reason
        self.changed[path] = Entry(Kind.PROBLEM, target=reason)
        self.fingerprints.pop(path, None)


def build_ignore(filter: Filter, rule_sets: Mapping[str, RuleSet]) -> Ignore:
    """Return the ignore rules of a tree, including those of the filter."""
    defaults = default_rules() if filter.files else None
    return Ignore(rule_sets, defaults, forced_rules(filter.include, filter.exclude))


def scan(root: Path, cache: ScanCache, filter: Filter) -> Scan:
    """Scan everything below a root that is not ignored. Raises OSError if the root is unreadable, or ScanCancelled."""
    walker = Walker(root, cache, filter)
    walker.walk("", cache.same_filter)
    found = walker.found
    found.removed = set(cache.fingerprints.keys() - found.fingerprints.keys())
    _complete_tree(found, cache)
    return found


def _complete_tree(found: Scan, cache: ScanCache) -> None:
    """Join changed entries with the cached entries of all other paths."""
    if found.unchanged and cache.fingerprints:
        return  # `complete_tree` reads the entries when they are needed
    cached_entries = cache.entries()
    found.tree = {p: cached_entries[p] for p in found.fingerprints if p not in found.changed}
    found.tree.update(found.changed)


def complete_tree(found: Scan, cache: ScanCache) -> Tree:
    """Return the tree of a scan. If nothing has changed, its entries are read from the cache."""
    if not found.tree and found.fingerprints:
        cached_entries = cache.entries()
        found.tree = {path: cached_entries[path] for path in found.fingerprints}
    return found.tree


class Walker:
    """Reads directories and classifies each path as ignored, cached or changed."""

    def __init__(self, root: Path, cache: ScanCache, filter: Filter) -> None:
        self.found = Scan(root, time.time_ns())
        self.cache = cache
        self.filter = filter
        self.ignore = build_ignore(filter, self.found.rule_sets)

    def walk(self, top: str, rules_unchanged: bool) -> None:
        """Read a directory tree level by level. `rules_unchanged` says whether ignore rules above it are unchanged."""
        with closing(PrefetchWalk()) as prefetch:
            pending = deque([(top, rules_unchanged)])
            while pending:
                if self.cache.cancelled():
                    raise ScanCancelled
                folder, rules_unchanged = pending.popleft()
                try:
                    self.read_directory(folder, rules_unchanged, pending, prefetch)
                except OSError as error:
                    if folder == "":
                        raise
                    if isinstance(error, NOT_FOUND):
                        self.found.mark_removed(folder)
                    else:
                        reason = f"the directory cannot be read: {error.strerror}"
                        self.found.add_problem(folder, reason)

    def read_directory(
        self,
        folder: str,
        rules_unchanged: bool,
        pending: deque[tuple[str, bool]],
        prefetch: PrefetchWalk,
    ) -> None:
        """Classify the entries of one directory, and queue its subdirectories."""
        prefix = folder + "/" if folder else ""
        listed = prefetch.read(f"{self.found.root}/{folder}")
        rules_unchanged = self.read_rules(prefix, folder, listed) and rules_unchanged
        cached, fingerprints = self.cache.fingerprints, self.found.fingerprints
        scanned_at_ns = self.cache.scanned_at_ns
        for item in listed:
            path = prefix + item.name
            previous = cached.get(path) if rules_unchanged else None
            if previous is None and self.is_ignored(path, item):
                continue
            try:
                status = item.stat(follow_symlinks=False)
                now = fingerprint(status)
                if previous == now and not self.cache.verify and not is_racy(now, scanned_at_ns):
                    fingerprints[path] = now
                else:
                    self.add_path(path, item.path, status, now)
            except FileNotFoundError:
                continue
            if fingerprints.get(path) == b"d":
                pending.append((path, rules_unchanged))
                prefetch.prefetch(item.path)

    def is_ignored(self, path: str, item: os.DirEntry[str]) -> bool:
        """Return whether a listed path is ignored, and record it if so."""
        directory = item.is_dir(follow_symlinks=False)
        if not self.ignore.is_ignored(path, directory):
            return False
        if not names.is_private(path):
            self.found.ignored_paths.add(path + "/" if directory else path)
        return True

    def read_rules(self, prefix: str, folder: str, listed: Sequence[os.DirEntry[str]]) -> bool:
        """Read the ignore files of a directory. Return whether they are unchanged since the last scan."""
        if not self.filter.files:
            return True
        rule_files = {item.name: item for item in listed if item.name in RULE_FILES}
        previous = {name for name in RULE_FILES if prefix + name in self.cache.fingerprints}
        texts = []
        same = previous == rule_files.keys()
        for name in RULE_FILES:
            if name in rule_files and (text := _read_rule_file(rule_files[name])) is not None:
                texts.append((prefix + name, text))
                same = same and self.cache.fingerprints.get(prefix + name) == _fingerprint_of(
                    rule_files[name]
                )
        if texts:
            self.found.rule_sets[folder] = RuleSet(texts)
        return same

    def add_path(self, path: str, absolute: str, status: os.stat_result, now: Fingerprint) -> None:
        """Add the entry of a path that differs from the cache."""
        mode = stat.S_IFMT(status.st_mode)
        reason = "" if _is_obviously_valid(path) else names.path_error(path)
        if mode == _REGULAR and not reason:
            executable = bool(status.st_mode & 0o100)
            entry = Entry(
                Kind.FILE, b"", status.st_size, executable, "", max(0, status.st_mtime_ns)
            )
        elif mode == _LINK and not reason:
            target = _read_link(absolute)
            if target is not None and names.is_text(target) and is_outward(path, target):
                self.add_outward_link(path, absolute, OutwardLink(target, now))
                return
            reason = CHANGES_WHILE_READ if target is None else names.link_error(path, target)
            entry = Entry(Kind.SYMLINK, target=target or "")
        elif mode == _FOLDER:
            entry = DIRECTORY
        elif not reason:
            reason = "it is a special file (socket, pipe or device)"
        if reason:
            self.found.add_problem(path, reason)
        else:
            self.found.fingerprints[path] = now
            self.found.changed[path] = entry

    def add_outward_link(self, path: str, absolute: str, link: OutwardLink) -> None:
        """Add a link that leads out of the workspace.

        A link that was synced before stays a link, even with --links copy: it may come from the cluster, which must
        not decide which local files are copied.
        """
        found, synced = self.found, self.cache.base().get(path)
        if synced == Entry(Kind.SYMLINK, target=link.target):
            found.fingerprints[path] = link.fingerprint
            found.changed[path] = synced
        elif self.filter.links is not Links.COPY or not self.add_link_target(path, absolute):
            found.fingerprints.pop(path, None)
            found.changed[path] = Entry(Kind.PROBLEM, target="it leads out of the workspace")
            found.outward_links[path] = link

    def add_link_target(self, path: str, absolute: str) -> bool:
        """Add the target of a link in place of the link. Return False for special files and enclosing directories."""
        try:
            status, real = os.stat(absolute), os.path.realpath(absolute)
        except OSError:
            return False
        now = fingerprint(status)
        if stat.S_ISREG(status.st_mode):
            self.found.copied_links[path] = os.path.relpath(real, os.path.realpath(self.found.root))
        elif not stat.S_ISDIR(status.st_mode) or self.contains_itself(path, real):
            return False
        cached = self.cache.fingerprints.get(path)
        if cached != now or self.cache.verify or is_racy(now, self.cache.scanned_at_ns):
            self.add_path(path, absolute, status, now)
        else:
            self.found.fingerprints[path] = now
        return True

    def contains_itself(self, path: str, real: str) -> bool:
        """Return whether the target directory of a link contains the link itself, so that its copy would be endless."""
        above = (os.path.realpath(f"{self.found.root}/{each}") for each in ("", *ancestors(path)))
        return any(is_within(each, real) for each in above)


def _read_link(link: str) -> str | None:
    """Return the target of a link, or None if the path is not a link any more. Raises FileNotFoundError."""
    try:
        return os.readlink(link)
    except FileNotFoundError:
        raise
    except OSError:
        return None


def _is_obviously_valid(path: str) -> bool:
    """Return whether a path is certainly valid. Others need the complete check by `names.path_error`."""
    return len(path) < names.MAX_NAME_BYTES and path.isascii() and path.count("/") < names.MAX_PARTS


def _fingerprint_of(item: os.DirEntry[str]) -> Fingerprint | None:
    try:
        return fingerprint(item.stat(follow_symlinks=False))
    except FileNotFoundError:
        return None


def _read_rule_file(item: os.DirEntry[str]) -> list[str] | None:
    if not item.is_file(follow_symlinks=False):
        return None
    try:
        return rule_lines(Path(item.path).read_bytes())
    except OSError:
        return None


def rule_lines(data: bytes) -> list[str]:
    """Return the lines of an ignore file. As for git, only a newline ends a line."""
    return data.removeprefix(BOM_UTF8).decode("utf-8", "surrogateescape").split("\n")
