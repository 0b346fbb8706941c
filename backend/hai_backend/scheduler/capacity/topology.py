"""Chooses empty nodes by network topology: ranks of a gang should cross few switches, and leave large domains unbroken.

A node's topology names its leaf switch first, then wider domains. A gang takes the smallest domain with enough empty
nodes (best fit), and in it as few leaf switches as possible.
"""

from __future__ import annotations

from collections.abc import Mapping

Domain = tuple[str, ...]


def spread(empty: Mapping[Domain, int], count: int) -> list[tuple[Domain, int]]:
    """How many nodes to take of which leaf; `empty` counts at least `count` empty nodes by topology."""
    if len(empty) == 1:
        return [(domain, count) for domain in empty]
    remaining = _smallest_domain(empty, count)
    chosen: list[tuple[Domain, int]] = []
    while count:
        domain = _leaf(remaining, count)
        take = min(count, remaining.pop(domain))
        chosen.append((domain, take))
        count -= take
    return chosen


def _smallest_domain(empty: Mapping[Domain, int], count: int) -> dict[Domain, int]:
    for depth in range(max(map(len, empty))):
        sums: dict[Domain, int] = {}
        for domain, number in empty.items():
            if domain[depth:]:
                sums[domain[depth:]] = sums.get(domain[depth:], 0) + number
        fitting = [(number, domain) for domain, number in sums.items() if number >= count]
        if fitting:
            _, best = min(fitting)
            return {domain: number for domain, number in empty.items() if domain[depth:] == best}
    return dict(empty)


def _leaf(remaining: Mapping[Domain, int], count: int) -> Domain:
    """The leaf with the fewest empty nodes that has enough, else the one with the most."""
    fitting = [(number, domain) for domain, number in remaining.items() if number >= count]
    if fitting:
        return min(fitting)[1]
    return min((-number, domain) for domain, number in remaining.items())[1]
