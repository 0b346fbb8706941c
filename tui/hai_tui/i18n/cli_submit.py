"""Messages of the commands that submit tasks; `cli.py` includes this table."""

from __future__ import annotations

TEXTS: dict[str, tuple[str, str]] = {
    "submitted": ("submitted task {id} ({name})", "任务 {id}（{name}）已提交"),
    "after.is": (
        "after {name}: that is task {id}, {status}",
        "在 {name} 之后：即任务 {id}，{status}",
    ),
    "after.hint": (
        "write TASK, TASK:failed, TASK:ended or tag:TAG, and --after again for each further one",
        "请写 TASK、TASK:failed、TASK:ended 或 tag:TAG；多个任务请重复 --after",
    ),
    "submitted.next": (
        "status: hai status {id}    log: hai logs {id} -f    stop: hai stop {id}",
        "查看：hai status {id}    日志：hai logs {id} -f    停止：hai stop {id}",
    ),
    "submitted.files": (
        "fetch its files: hai workspace download --task {id}",
        "取回它写的文件：hai workspace download --task {id}",
    ),
    "submitted.array": (
        "all {count} tasks: hai list --tag {tag}    wait: hai status --wait $(hai list -q --tag {tag})"
        "    stop: hai stop $(hai list -q --tag {tag})    run after them: --after tag:{tag}",
        "共 {count} 个任务：hai list --tag {tag}    等待结束：hai status --wait $(hai list -q --tag {tag})"
        "    全部停止：hai stop $(hai list -q --tag {tag})    在其后运行：--after tag:{tag}",
    ),
    "submitted.part": (
        "{count} tasks were created: hai list --tag {tag}"
        "    stop them before you submit all again: hai stop $(hai list -q --tag {tag})",
        "已有 {count} 个任务：hai list --tag {tag}"
        "    停止它们后可重新提交全部：hai stop $(hai list -q --tag {tag})",
    ),
    "submitted.unread": (
        "{words} lines in {file} are not read; give the options after --, such as -n 2 --name fit",
        "{file} 中的 {words} 行不会被读取：请写在 -- 之后，例如 -n 2 --name fit",
    ),
    "sbatch.read": (
        "read from {file}, as if given after --: {options}",
        "已读取 {file} 中的选项，等同于写在 -- 之后：{options}",
    ),
    "sbatch.note": ("{file}: {note}", "{file} 提示：{note}"),
    "submitted.until": (
        "stopped at task {number} of {count}, {name}:",
        "提交到第 {number} 个任务（共 {count} 个，{name}）为止：",
    ),
    "valid": (
        "{name}: accepted by the server; nothing was submitted",
        "{name}：服务端检查通过，未提交",
    ),
    "dry.quota": (
        "quota {row}: {held} of {allowed} nodes held now, {after} with this task",
        "配额 {row}：现占 {held}/{allowed} 个节点，加上本任务为 {after}",
    ),
    "dry.total": ("in total", "总计"),
    "dry.victim": (
        "task {id} of {user} leaves {nodes}: {lost} of work are lost, {cost} with its restart",
        "{user} 的任务 {id} 让出 {nodes}：损失 {lost} 的工作，含重启为 {cost}",
    ),
    "dry.leaving": (
        "task {id} of {user} is leaving {nodes} already",
        "{user} 的任务 {id} 已在让出 {nodes}",
    ),
    "schema.valid": ("{source}: valid", "{source}：有效"),
    "schema.no_effect": ("without effect here: {fields}", "在此不起作用：{fields}"),
}
