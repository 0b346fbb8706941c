"""What the list of tasks says. A table, so it is long."""

from __future__ import annotations

TEXTS: dict[str, tuple[str, str]] = {
    "tasks.empty": (
        "no task yet · `hai python train.py -- -n 1` submits one",
        "还没有任务 · 用 `hai python train.py -- -n 1` 提交",
    ),
    "tasks.nomatch": ("no task matches · esc clears the filter", "没有匹配的任务 · esc 清除过滤"),
    "col.id": ("ID", "编号"),
    "col.name": ("NAME", "名称"),
    "col.user": ("USER", "用户"),
    "col.status": ("STATUS", "状态"),
    "col.priority": ("PRIORITY", "优先级"),
    "col.nodes": ("NODES", "节点"),
    "col.group": ("GROUP", "分组"),
    "col.runs": ("RUNS", "次数"),
    "col.age": ("AGE", "时长"),
    "col.used": ("USED", "运行"),
    "col.why": ("WHY", "原因"),
    "col.place": ("PLACE", "排位"),
    "col.type": ("TYPE", "类型"),
    "col.tags": ("TAGS", "标签"),
    "col.star": ("★", "★"),
    "col.life": ("LIFE", "状态值"),
    "col.suspends": ("SUSPENDS", "挂起"),
    "col.created": ("CREATED", "创建"),
    "col.finished": ("FINISHED", "结束"),
    "col.hosts": ("HOSTS", "主机"),
}
