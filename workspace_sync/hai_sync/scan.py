"""From a directory to a tree. Nothing is followed, nothing is opened that need not be.

What has an unchanged signature is taken as it was remembered. Other files stay unhashed until somebody
needs to know: of what exists on one side only, the name and size decide.
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
from hai_sync.core.entry import DIRECTORY, Entry, Kind, Tree, ancestors, below
from hai_sync.core.ignore import FILES, Ignore, RuleSet, default_rules, forced_rules
from hai_sync.core.links import Links, leads_out, why_skipped
from hai_sync.errors import CHANGING, GONE
from hai_sync.file_fingerprint import Signature, racy, signature
from hai_sync.prefetch_walk import PrefetchWalk

_REGULAR, _LINK, _FOLDER = stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR


class GivenUp(Exception):
    """A scan was not finished."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What the caller wants left out, or not."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    files: bool = True  # read .gitignore, .haiignore and .hfignore
    links: Links = Links.AUTO  # what is done about those that lead out of the workspace

    @property
    def is_special(self) -> bool:
        """Whether other paths are left out than the usual ones."""
        return bool(self.include or self.exclude or not self.files)

    def fingerprint(self) -> str:
        """Equal for equal filters."""
        return repr((self.include, self.exclude, self.files, self.links.value))


@dataclass(slots=True)
class Known:
    """What earlier scans have seen, and when."""

    signatures: Mapping[str, Signature] = field(default_factory=dict)
    entries: Callable[[], Mapping[str, Entry]] = dict  # asked for only if anything has changed
    looked_ns: int = 0
    same_filter: bool = True  # what was seen then was not left out, and need not be asked again
    verify: bool = False  # look into every file again
    given_up: Callable[[], bool] = lambda: False  # nobody waits for the scan any more
    base: Callable[[], Tree] = dict  # what both sides agreed on; asked for only if a link leads out


class OutwardLink(NamedTuple):
    """A link that leads out of the workspace."""

    target: str
    seen: Signature


@dataclass(slots=True)
class Scan:
    """What a directory holds."""

    root: Path
    looked_ns: int
    signatures: dict[str, Signature] = field(default_factory=dict)
    fresh: dict[str, Entry] = field(default_factory=dict)  # not as remembered
    gone: set[str] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)
    outward: dict[str, OutwardLink] = field(default_factory=dict)  # nobody has decided about these
    skipped: dict[str, str] = field(
        default_factory=dict
    )  # links that lead out, with why they are left alone
    copied: dict[str, str] = field(
        default_factory=dict
    )  # links in whose place a file is synced: where that lies
    left_out: set[str] = field(default_factory=set)  # directories with a slash at their end
    levels: dict[str, RuleSet] = field(default_factory=dict)
    tree: dict[str, Entry] = field(default_factory=dict)
    before: Scan | None = None  # the one that this only adds to

    @property
    def ignored(self) -> int:
        """How many paths were left out; what lies below them does not count."""
        return len(self.left_out)

    @property
    def unchanged(self) -> bool:
        """True when everything is as remembered."""
        return not (self.fresh or self.gone)

    def settle_links(self, links: Links, on_cluster: Set[str]) -> None:
        """Keep or skip the links that lead out; `on_cluster`: the targets that exist there."""
        for path, link in self.outward.items():
            if why := why_skipped(links, link.target, link.target in on_cluster):
                self.skipped[path] = why
                self.fresh[path] = Entry(Kind.PROBLEM, target=why)
            else:
                self.signatures[path] = link.seen
                self.fresh[path] = Entry(Kind.SYMLINK, target=link.target)
                self.gone.discard(path)
            self.tree[path] = self.fresh[path]
        self.outward.clear()

    def vanish(self, path: str) -> None:
        """This path was gone when it was read, so nothing is there."""
        self.signatures.pop(path, None)
        self.fresh.pop(path, None)
        self.tree.pop(path, None)
        self.gone.add(path)

    def trouble(self, path: str, why: str) -> None:
        """This path cannot be synced."""
        self.problems[path] = why
        self.fresh[path] = Entry(Kind.PROBLEM, target=why)
        self.signatures.pop(path, None)


def ignore_of(filter: Filter, levels: Mapping[str, RuleSet]) -> Ignore:
    """The rules of a tree, the filter's included."""
    defaults = default_rules() if filter.files else None
    return Ignore(levels, defaults, forced_rules(filter.include, filter.exclude))


def scan(root: Path, known: Known, filter: Filter) -> Scan:
    """Everything below a root that is not left out. Raises OSError when the root cannot be read, GivenUp."""
    walker = Walker(root, known, filter)
    walker.walk("", known.same_filter)
    found = walker.found
    found.gone = set(known.signatures.keys() - found.signatures.keys())
    _join(found, known)
    return found


def _join(found: Scan, known: Known) -> None:
    """The whole tree: what is fresh, and the rest as it was."""
    if found.unchanged and known.signatures:
        return  # nobody needs the tree; `full_tree` makes it for those who do
    remembered = known.entries()
    found.tree = {p: remembered[p] for p in found.signatures if p not in found.fresh}
    found.tree.update(found.fresh)


def full_tree(found: Scan, known: Known) -> Tree:
    """The tree of a scan, also where nothing has changed."""
    if not found.tree and found.signatures:
        remembered = known.entries()
        found.tree = {path: remembered[path] for path in found.signatures}
    return found.tree


class Walker:
    """Reads directories, and asks of each path whether it is left out, known or fresh."""

    def __init__(self, root: Path, known: Known, filter: Filter) -> None:
        self.found = Scan(root, time.time_ns())
        self.known = known
        self.filter = filter
        self.ignore = ignore_of(filter, self.found.levels)

    def walk(self, top: str, trusted: bool) -> None:
        """Everything in a directory, level by level; `trusted`: no rule above it has changed."""
        with closing(PrefetchWalk()) as ahead:
            todo = deque([(top, trusted)])
            while todo:
                if self.known.given_up():
                    raise GivenUp
                folder, trusted = todo.popleft()
                try:
                    self.read(folder, trusted, todo, ahead)
                except OSError as error:
                    if folder == "":
                        raise
                    if isinstance(error, GONE):
                        self.found.vanish(folder)
                    else:
                        why = f"the directory cannot be read: {error.strerror}"
                        self.found.trouble(folder, why)

    def read(
        self, folder: str, trusted: bool, todo: deque[tuple[str, bool]], ahead: PrefetchWalk
    ) -> None:
        prefix = folder + "/" if folder else ""
        listed = ahead.read(f"{self.found.root}/{folder}")
        trusted = self.rules(prefix, folder, listed) and trusted
        known, looked, seen = self.known.signatures, self.known.looked_ns, self.found.signatures
        for item in listed:
            path = prefix + item.name
            before = known.get(path) if trusted else None
            if before is None and self.left_out(path, item):
                continue
            try:
                status = item.stat(follow_symlinks=False)
                now = signature(status)
                if before == now and not self.known.verify and not racy(now, looked):
                    seen[path] = now
                else:
                    self.see(path, item.path, status, now)
            except FileNotFoundError:
                continue
            if seen.get(path) == b"d":
                todo.append((path, trusted))
                ahead.expect(item.path)

    def left_out(self, path: str, item: os.DirEntry[str]) -> bool:
        directory = item.is_dir(follow_symlinks=False)
        if not self.ignore.skips(path, directory):
            return False
        if not names.is_own(path):
            self.found.left_out.add(path + "/" if directory else path)
        return True

    def rules(self, prefix: str, folder: str, listed: Sequence[os.DirEntry[str]]) -> bool:
        """Read the directory's rules; True when they are those of the last time."""
        if not self.filter.files:
            return True
        here = {item.name: item for item in listed if item.name in FILES}
        before = {name for name in FILES if prefix + name in self.known.signatures}
        texts = []
        same = before == here.keys()
        for name in FILES:
            if name in here and (text := _read_rules(here[name])) is not None:
                texts.append((prefix + name, text))
                same = same and self.known.signatures.get(prefix + name) == _signature_of(
                    here[name]
                )
        if texts:
            self.found.levels[folder] = RuleSet(texts)
        return same

    def see(self, path: str, at: str, status: os.stat_result, now: Signature) -> None:
        """One path that is not as it was remembered."""
        mode = stat.S_IFMT(status.st_mode)
        why = "" if _is_plain(path) else names.fault(path)
        if mode == _REGULAR and not why:
            executable = bool(status.st_mode & 0o100)
            entry = Entry(
                Kind.FILE, b"", status.st_size, executable, "", max(0, status.st_mtime_ns)
            )
        elif mode == _LINK and not why:
            target = _target_of(at)
            if target is not None and names.is_text(target) and leads_out(path, target):
                self.see_outward(path, at, OutwardLink(target, now))
                return
            why = CHANGING if target is None else names.link_fault(path, target)
            entry = Entry(Kind.SYMLINK, target=target or "")
        elif mode == _FOLDER:
            entry = DIRECTORY
        elif not why:
            why = "it is a special file (socket, pipe or device)"
        if why:
            self.found.trouble(path, why)
        else:
            self.found.signatures[path] = now
            self.found.fresh[path] = entry

    def see_outward(self, path: str, at: str, link: OutwardLink) -> None:
        """A link that leads out. One that is synced stays a link: it may have come from the cluster, which must not
        choose what is copied from here."""
        found, synced = self.found, self.known.base().get(path)
        if synced == Entry(Kind.SYMLINK, target=link.target):
            found.signatures[path] = link.seen
            found.fresh[path] = synced
        elif self.filter.links is not Links.COPY or not self.copy(path, at):
            found.signatures.pop(path, None)
            found.fresh[path] = Entry(Kind.PROBLEM, target="it leads out of the workspace")
            found.outward[path] = link

    def copy(self, path: str, at: str) -> bool:
        """See what a link leads to in its place; False: that is neither a file nor a directory, or holds the link."""
        try:
            status, real = os.stat(at), os.path.realpath(at)
        except OSError:
            return False
        now = signature(status)
        if stat.S_ISREG(status.st_mode):
            self.found.copied[path] = os.path.relpath(real, os.path.realpath(self.found.root))
        elif not stat.S_ISDIR(status.st_mode) or self.lies_in(path, real):
            return False
        looked = self.known.looked_ns
        if self.known.signatures.get(path) != now or self.known.verify or racy(now, looked):
            self.see(path, at, status, now)
        else:
            self.found.signatures[path] = now
        return True

    def lies_in(self, path: str, real: str) -> bool:
        """Whether a directory that a path goes through lies in another one, which would have to hold itself."""
        above = (os.path.realpath(f"{self.found.root}/{each}") for each in ("", *ancestors(path)))
        return any(below(each, real) for each in above)


def _target_of(link: str) -> str | None:
    """None: it is no link any more. Raises FileNotFoundError."""
    try:
        return os.readlink(link)
    except FileNotFoundError:
        raise
    except OSError:
        return None


def _is_plain(path: str) -> bool:
    """Of what a directory lists, almost every path: no need to look closer."""
    return len(path) < names.NAME_BYTES and path.isascii() and path.count("/") < names.PARTS


def _signature_of(item: os.DirEntry[str]) -> Signature | None:
    try:
        return signature(item.stat(follow_symlinks=False))
    except FileNotFoundError:
        return None


def _read_rules(item: os.DirEntry[str]) -> list[str] | None:
    if not item.is_file(follow_symlinks=False):
        return None
    try:
        return rule_lines(Path(item.path).read_bytes())
    except OSError:
        return None


def rule_lines(data: bytes) -> list[str]:
    """The lines of a file of rules as git divides it: no other character ends a line."""
    return data.removeprefix(BOM_UTF8).decode("utf-8", "surrogateescape").split("\n")
