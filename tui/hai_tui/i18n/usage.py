"""What pages of use over time, and of the audit, say."""

from __future__ import annotations

TEXTS: dict[str, tuple[str, str]] = {
    "page.usage": ("usage", "用量"),
    "page.usage.about": ("nodes, GPUs and the queue over time", "节点、GPU 与排队的变化曲线"),
    "page.audit": ("audit", "审计"),
    "page.audit.about": ("who changed what", "谁做了什么操作"),
    "kind.audit": ("a call", "一次操作"),
    "tab.usage": ("usage", "用量"),
    "usage.rank": ("rank {rank}, run {run}", "rank {rank}，第 {run} 次运行"),
    "usage.numbers": (
        "{what}: last {last}, mean {mean}, max {most}",
        "{what}：最近 {last}，平均 {mean}，最大 {most}",
    ),
    "usage.of": (" of {count}", "，共 {count}"),
    "usage.together": ("all ranks together", "所有 rank 合计"),
    "usage.some": (
        "ranks {first} to {last} of {count} · ] the next, [ the ones before",
        "rank {first} 至 {last}，共 {count} 个 · ] 后一组，[ 前一组",
    ),
    "usage.all.shown": ("all ranks are shown", "已显示所有 rank"),
    "usage.next": ("next ranks", "后一组 rank"),
    "usage.before": ("ranks before", "前一组 rank"),
    "usage.rank.cpus": ("CPUs", "CPU"),
    "usage.rank.memory": ("memory", "内存"),
    "usage.rank.gpu": ("GPUs", "GPU"),
    "usage.rank.gpu-memory": ("GPU memory", "显存"),
    "usage.gpu.of": ("GPU utilisation of booked GPUs", "占用 GPU 的利用率"),
    "usage.all": ("all groups", "所有分组"),
    "usage.longer": ("longer", "更长"),
    "usage.shorter": ("shorter", "更短"),
}
