"""`python -m tests.bench.plot`: draw bench.json's figures about scheduling as docs/scheduling-*.svg."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "hai"  # equal figures produce equal files
from matplotlib import pyplot as plt  # noqa: E402 (the backend is chosen first)

DOCS = Path(__file__).parents[2] / "docs"
_SLICES = ("itp04", "itp06", "philly_a", "kalos_llm")

# How much of the gap other policies close, in percent. They do not know run times (reference simulator, same slices).
_OTHERS = {
    "EASY backfill": (0, 0, 0, 0),
    "time slices of HAI": (48, 77, 78, 53),
    "2D-LAS (Tiresias)": (84, 81, 80, 63),
}


def main() -> None:
    figures = {figure["name"]: figure for figure in json.loads(Path("bench.json").read_text())}
    _ranking(figures)
    _speed(figures)


def _ranking(figures: dict[str, dict[str, Any]]) -> None:
    ours = tuple(figures[f"ranking, gap closed, {name}"]["value"] for name in _SLICES)
    rows = {**_OTHERS, "HAI Platform": ours}
    _, axes = plt.subplots(figsize=(8, 3.6))
    for number, (label, values) in enumerate(rows.items()):
        places = [i + (number - 1.5) * 0.2 for i in range(len(_SLICES))]
        axes.bar(places, values, 0.19, label=label)
    axes.axhline(100, color="grey", linewidth=0.8)
    axes.text(3.45, 101, "clairvoyant", ha="right", fontsize=8, color="grey")
    axes.set_xticks(range(len(_SLICES)), _SLICES)
    axes.set_ylabel("gap closed, %")
    axes.set_ylim(0, 125)
    axes.legend(ncols=4, fontsize=8, loc="upper center", frameon=False)
    _save("scheduling-ranking")


def _speed(figures: dict[str, dict[str, Any]]) -> None:
    queues = (1, 10, 100)
    _, axes = plt.subplots(figsize=(8, 3.2))
    for part in ("p50", "p99"):
        values = [
            figures[f"steady pass, 10 000 nodes, {n}k waiting, {part}"]["value"] for n in queues
        ]
        axes.plot(queues, values, marker="o", label=f"steady pass, {part}")
    cold = [1000 * figures[f"pass from cold, 10 000 nodes, {n}k waiting"]["value"] for n in queues]
    axes.plot(queues, cold, marker="s", linestyle="--", color="grey", label="from cold")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(queues, [f"{n} 000" for n in queues])
    axes.set_xlabel("waiting tasks (10 000 nodes, 5 000 running, 500 users, 20 groups)")
    axes.set_ylabel("ms")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, frameon=False)
    _save("scheduling-speed")


def _save(name: str) -> None:
    plt.tight_layout()
    plt.savefig(DOCS / f"{name}.svg", metadata={"Date": None})
    plt.close()


if __name__ == "__main__":
    main()
