"""What the command says most often, in English and Chinese. Everything rarer is English only.

HAI_LANG, else LC_ALL, LC_MESSAGES or LANG chooses; anything that does not begin with zh is English.
This file is a table, so it is long.
"""

from __future__ import annotations

import os

from hai_tui.cli.submission.messages import SUBMIT_TEXTS

_VARIABLES = ("HAI_LANG", "LC_ALL", "LC_MESSAGES", "LANG")

TEXTS: dict[str, tuple[str, str]] = {
    "about": (
        "Share a GPU cluster by task, in time slices.",
        "按任务分时共享 GPU 集群。",
    ),
    "section.run": ("Run", "运行"),
    "section.tasks": ("Tasks", "任务"),
    "section.cluster": ("Cluster", "集群"),
    "section.account": ("Account", "账号"),
    "section.admin": ("Admin", "管理"),
    "section.common": ("Common options", "通用选项"),
    "cmd.python": (
        "Run a Python file here (no separator), submit it (--), or simulate (++).",
        "在本机运行 Python 文件；加 -- 提交到集群，加 ++ 在本机模拟。",
    ),
    "cmd.bash": ("The same for a shell script.", "同上，用于 shell 脚本。"),
    "cmd.exec": ("The same for any program.", "同上，用于任意可执行程序。"),
    "cmd.run": (
        "Submit tasks from yaml files, or from - (stdin).",
        "提交 yaml 文件（- 为标准输入）中的任务。",
    ),
    "cmd.validate-schema": ("Check yaml files without a server.", "离线检查 yaml 文件。"),
    "cmd.demo": (
        "Watch a training be suspended and resumed on a private cluster.",
        "在私有集群上演示训练任务的打断与恢复。",
    ),
    "cmd.list": ("List tasks.", "列出任务。"),
    "cmd.status": (
        "Show a task and its ranks, or wait for a state.",
        "查看任务及其各个 rank，或等待某个状态。",
    ),
    "cmd.describe": (
        "Print a task's yaml; `hai run` takes it back.",
        "输出任务的 yaml，可再用 hai run 提交。",
    ),
    "cmd.logs": ("Print or follow what a task's programs print.", "查看或跟随任务日志。"),
    "cmd.stop": ("End tasks.", "停止任务。"),
    "cmd.suspend": ("Ask tasks to save and leave their nodes.", "挂起任务：保存后让出节点。"),
    "cmd.resume": ("Let held tasks start again.", "恢复被保持挂起的任务。"),
    "cmd.priority": ("Change the priority of tasks.", "修改任务优先级。"),
    "cmd.rank": ("Put a waiting task before your others.", "调整自己排队任务的先后。"),
    "cmd.tag": ("Add labels to a task.", "给任务加标签。"),
    "cmd.untag": ("Remove labels from a task.", "去掉任务的标签。"),
    "cmd.star": ("Mark tasks.", "收藏任务。"),
    "cmd.unstar": ("Unmark tasks.", "取消收藏。"),
    "cmd.why": (
        "Say why a task waits or is silent, and what would help.",
        "说明任务为何排队或失联以及如何改善。",
    ),
    "cmd.events": ("Show the timeline of a task.", "查看任务的时间线。"),
    "cmd.usage": (
        "Show what a task, or the cluster, used over time.",
        "查看任务或集群的资源使用曲线。",
    ),
    "cmd.audit": ("Show who changed what.", "查看操作审计记录。"),
    "cmd.tui": ("Open the full-screen terminal app.", "打开全屏终端应用。"),
    "cmd.top": ("The cluster on one page.", "集群概况（一页）。"),
    "cmd.queue": ("Show the queue in order.", "按顺序查看排队任务。"),
    "cmd.nodes": ("List nodes and who holds them.", "列出节点及其占用者。"),
    "cmd.groups": ("List node groups with their numbers.", "列出节点分组。"),
    "cmd.simulate": (
        "Replay job traces through the scheduler, and compare.",
        "用调度器回放作业记录并比较结果。",
    ),
    "cmd.init": ("Store a server and a token as a profile.", "保存服务器地址和令牌。"),
    "cmd.whoami": ("Show who you are, your quotas and tokens.", "查看自己的身份、配额和令牌。"),
    "cmd.config": ("List, choose and change profiles.", "管理多个集群配置。"),
    "cmd.token": ("List, create and revoke tokens.", "管理访问令牌。"),
    "cmd.version": ("Print the versions of client and server.", "输出客户端和服务端版本。"),
    "cmd.completion": ("Print a completion script for your shell.", "输出 shell 补全脚本。"),
    "cmd.up": ("Start a server on this machine.", "在本机启动服务。"),
    "cmd.down": ("Stop the server of this machine.", "停止本机服务。"),
    "cmd.cluster": ("Run the servers in a Kubernetes cluster.", "在 Kubernetes 集群中运行服务。"),
    "cmd.node": ("Take nodes out of service and back, and label them.", "上下线节点，管理标签。"),
    "cmd.group": ("Change the settings of a node group.", "修改节点分组设置。"),
    "cmd.user": ("List, create and change users.", "管理用户。"),
    "cmd.quota": ("List, set and delete quotas.", "管理配额。"),
    "cmd.share": ("List, set and delete shares of node groups.", "管理用户组在节点分组中的份额。"),
    "cmd.right": ("List, grant and revoke rights.", "管理用户与用户组的权限。"),
    "cmd.registry": ("Accounts at image registries.", "管理镜像仓库账号。"),
    "cmd.container": (
        "Dev containers: JupyterLab on the cluster.",
        "开发容器：集群上的 JupyterLab。",
    ),
    "cmd.shell": ("Open a terminal in a rank of a task.", "在任务的某个 rank 中打开终端。"),
    "cmd.port-forward": (
        "Let local ports lead into a rank of a task.",
        "把本机端口转发到任务的某个 rank。",
    ),
    "cmd.port": ("Keep ports for services of your tasks.", "为任务的服务保留端口。"),
    "cmd.artifact": ("What tasks have made and need.", "管理任务的输入与产出。"),
    "cmd.workspace": (
        "Keep a directory here and on the cluster the same.",
        "在本地与集群间同步工作区。",
    ),
    "cmd.env": ("Python environments for tasks (haienv).", "管理任务的 Python 环境（haienv）。"),
    "cmd.dataset": ("List datasets, add them, take them off.", "列出与登记数据集。"),
    "cmd.webhook": (
        "Be told when tasks start, are suspended, end or fail.",
        "在任务开始、挂起、结束或失败时收到通知。",
    ),
    "cmd.message": ("Read what operators say.", "查看管理员发布的消息。"),
    "cmd.storage": ("What tasks see of the storage; its rules.", "查看任务的挂载；管理挂载规则。"),
    "cmd.image": ("List, check and name images.", "查看、检查镜像，管理内置镜像。"),
    "cmd.admin": ("Look into a server: its scheduler's snapshot.", "查看服务内部：调度器快照。"),
    **SUBMIT_TEXTS,
    "env.inherited": (
        "inherits the environment {env} (--no-inherit to leave it out)",
        "继承当前环境 {env}（用 --no-inherit 取消）",
    ),
    "follow.left": (
        "stopped following; task {id} keeps running (hai logs {id} -f, hai stop {id})",
        "已停止跟随；任务 {id} 仍在运行（hai logs {id} -f，hai stop {id}）",
    ),
    "follow.end": ("task {id} ended: {status}", "任务 {id} 已结束：{status}"),
    "follow.waits": (
        "task {id} waits: {why} (hai why {id})",
        "任务 {id} 在等待：{why}（hai why {id}）",
    ),
    "follow.lost": (
        "{error}; going on once it answers (Ctrl-C leaves)",
        "{error}；恢复后继续（Ctrl-C 退出）",
    ),
    "interrupted": ("interrupted", "已中断"),
    "full.hint": (
        "the disk, or your part of it, is full; run it again when there is room",
        "磁盘或您的配额已满；有空间后请重试",
    ),
    "removed": ("the directory where you stand was removed", "当前目录已被删除"),
    "removed.hint": ("cd elsewhere", "请切换到其他目录"),
    "none.tasks": ("no tasks match", "没有符合条件的任务"),
    "none.own": ("you have no unfinished tasks; see `hai list --mine`", "没有未结束的任务"),
    "none.queue": ("nothing waits", "没有排队的任务"),
    "none.nodes": ("no nodes", "没有节点"),
    "none.groups": ("no groups", "没有分组"),
    "none.events": ("no events", "没有事件"),
    "none.usage": ("nothing was measured then", "该时段没有测量数据"),
    "none.audit": ("no such calls", "没有符合条件的操作"),
    "usage.heading": ("{start} to {end}, {step} a step", "{start} 至 {end}，每步 {step}"),
    "usage.nodes": ("busy nodes", "占用节点"),
    "usage.gpus": ("booked GPUs", "占用 GPU"),
    "usage.gpu": ("GPU utilisation", "GPU 利用率"),
    "usage.waiting": ("waiting tasks", "排队任务"),
    "none.users": ("no users", "没有用户"),
    "none.quotas": ("no quotas", "没有配额"),
    "none.shares": ("no shares", "没有份额"),
    "none.grants": ("no rights were granted", "没有授予任何权限"),
    "none.mounts": ("no mounts", "没有挂载"),
    "none.rules": ("no rules", "没有规则"),
    "none.ports": ("no ports", "没有端口"),
    "none.containers": (
        "no dev containers; `hai container create` makes one",
        "没有开发容器；可用 hai container create 创建",
    ),
    "none.services": ("no services", "没有服务"),
    "container.next": (
        "open it with: hai container open {id}",
        "用 hai container open {id} 打开",
    ),
    "container.ends": (
        "it is put away at {time}; `hai container renew` gives it more",
        "将于 {time} 收起；hai container renew 可续期",
    ),
    "container.is": ("container {id} is {status}", "容器 {id} 的状态：{status}"),
    "container.idle": ("nobody has used it for {span}", "已闲置 {span}"),
    "container.leaves": (
        "it has to leave until {until}: {notice}",
        "须在 {until} 前让出：{notice}",
    ),
    "container.started": (
        "container {id} starts when it is its turn, at its old address",
        "容器 {id} 轮到时会启动，地址不变",
    ),
    "container.stopped": (
        "container {id} is put away; its files stay. hai container start {id} brings it back",
        "容器 {id} 已收起，文件保留；用 hai container start {id} 恢复",
    ),
    "container.deleted": ("container {id} is deleted", "容器 {id} 已删除"),
    "container.confirm": (
        "End container {ids} for good, and remove all files in it?",
        "确定要永久结束容器 {ids} 并删除其中的所有文件吗？",
    ),
    "none.artifacts": ("no artifacts", "没有制品"),
    "none.datasets": ("no datasets", "没有数据集"),
    "none.messages": ("no messages", "没有消息"),
    "none.webhooks": ("no webhooks", "没有 webhook"),
    "none.images": ("no built-in images", "没有内置镜像"),
    "none.registries": ("no registries", "没有镜像仓库"),
    "none.tokens": ("no tokens", "没有令牌"),
    "none.profiles": (
        "no profiles; `hai init` or `hai up` makes one",
        "没有配置；请先运行 hai init 或 hai up",
    ),
    "list.more": (
        "{shown} of {total} shown; more: --page {page}",
        "显示 {shown}/{total} 个，下一页：--page {page}",
    ),
    "confirm": ("{verb} {what}?", "确定要{verb} {what} 吗？"),
    "confirm.behind": ("waiting for the end of it: {what}\n", "等待其结束的有：{what}\n"),
    "confirm.no": ("nothing was changed", "未做任何更改"),
    "verb.stop": ("stop", "停止"),
    "verb.suspend": ("suspend", "挂起"),
    "done.stopping": ("stopping", "正在停止"),
    "done.ended": ("ended: {status}", "已结束：{status}"),
    "done.suspending": ("suspending", "正在挂起"),
    "done.held": ("held until `hai resume {id}`", "已保持挂起，用 hai resume {id} 恢复"),
    "done.suspended": ("waits in the queue", "已回到队列"),
    "done.resumed": ("may start again", "可以重新调度"),
    "done.resumed.later": (
        "may start again once it has left its nodes",
        "让出节点后可以重新调度",
    ),
    "done.resumed.runs": ("runs; it was not suspended", "正在运行，并未挂起"),
    "done.resumed.stopping": (
        "is being stopped, which cannot be taken back; submit it again: hai describe {id} | hai run -",
        "正在停止，无法撤回；可重新提交：hai describe {id} | hai run -",
    ),
    "done.after": ("waits for task {tasks} to end", "等待任务 {tasks} 结束"),
    "done.priority": ("priority {priority}", "优先级 {priority}"),
    "done.moved": ("moved", "已调整顺序"),
    "done.tags": ("tags: {tags}", "标签：{tags}"),
    "done.starred": ("starred", "已收藏"),
    "done.unstarred": ("not starred", "已取消收藏"),
    "snapshot.done": ("{file} written", "已写入 {file}"),
    "done.cordoned": ("takes no new work", "不再接收新任务"),
    "done.labelled": ("labels: {labels}", "标签：{labels}"),
    "done.uncordoned": ("takes work again", "恢复接收任务"),
    "done.drained": ("takes no new work, tasks are asked to leave", "不再接收任务，让任务离开"),
    "from.group": ("group", "分组"),
    "from.server": ("server", "服务端"),
    "preview.starts": ("would start", "将启动"),
    "preview.delayed": ("would not start yet", "将推迟启动"),
    "preview.suspended": ("would be suspended", "将被挂起"),
    "preview.spared": ("would no longer be suspended", "将不再被挂起"),
    "preview.moved": (
        "{moved} of {waiting} waiting tasks would change place",
        "{waiting} 个排队任务中有 {moved} 个位置改变",
    ),
    "preview.none": (
        "the next scheduling pass would decide the same",
        "下一轮调度的决定不变",
    ),
    "preview.done": (
        "nothing was changed; without --preview it is",
        "未做任何更改；去掉 --preview 即生效",
    ),
    "why.runs": (
        "task {id} ({name}) does not wait: it is {status}",
        "任务 {id}（{name}）没有在排队：{status}",
    ),
    "why.failed": ("task {id} ({name}) has failed:", "任务 {id}（{name}）失败："),
    "why.silent": (
        "task {id} ({name}) is {status}: {silent}",
        "任务 {id}（{name}）{status}：{silent}",
    ),
    "why.do": ("what you can do:", "可以采取的措施："),
    "silent.task": ("task {id}: {silent}", "任务 {id}：{silent}"),
    "top.silent": ("running tasks with silent agents: {count}", "agent 失联的运行中任务：{count}"),
    "silent.status": (
        "{silent}; the program may run on unseen (hai why {id})",
        "{silent}；程序可能仍在运行（hai why {id}）",
    ),
    "status.dropped": (
        "rank {rank}: the first {dropped} of its log are not kept: a log keeps its newest part",
        "rank {rank}：日志开头的 {dropped} 没有保留：日志只保留最新的部分",
    ),
    "status.dropped_lines": ("{count} lines ({size})", "{count} 行（{size}）"),
    "why.waits": ("task {id} ({name}) waits: {reason}", "任务 {id}（{name}）在排队：{reason}"),
    "why.place": (
        "place {place} in the queue of {group}, at {priority}",
        "在 {group} 队列中排第 {place}，优先级 {priority}",
    ),
    "why.ahead": ("ahead of it:", "排在前面的任务："),
    "why.help": ("what would help:", "可以尝试："),
    "why.history": ("suspended before:", "曾被打断："),
    "start.when": (
        "predicted start: {interval} (odds 80 %), as likely before as after {middle}; from {basis}",
        "预计启动时间：{interval}（概率 80%），中位数 {middle}；依据：{basis}",
    ),
    "start.open": (
        "predicted start: after {first} (odds 90 %), likely later than was looked at; from {basis}",
        "预计启动时间：{first} 之后（概率 90%），很可能晚于预测范围；依据：{basis}",
    ),
    "start.none": ("no predicted start: {reason}", "无法预测启动时间：{reason}"),
    "up.starting": ("starting a server in {home} …", "正在 {home} 启动服务 …"),
    "up.waiting": (
        "a server is being started in {home} already; waiting for it …",
        "{home} 的服务正在启动，等待中 …",
    ),
    "up.running": (
        "a server is running already at {address} (pid {pid})",
        "服务已在 {address} 运行（pid {pid}）",
    ),
    "up.kept": ("profile {profile!r} speaks to it now", "配置 {profile!r} 现已指向它"),
    "up.unused": (
        "it keeps its own settings; for {given}: `hai down`, then `hai up` again",
        "它保持原有设置；要使用 {given}，请先 hai down 再 hai up",
    ),
    "up.ready": (
        "the server runs at {address} (pid {pid}); profile {profile!r} speaks to it",
        "服务已启动：{address}（pid {pid}），配置 {profile!r} 指向它",
    ),
    "up.next": (
        "try: hai nodes    hai python train.py -- -n 1 -f    hai down",
        "试试：hai nodes    hai python train.py -- -n 1 -f    hai down",
    ),
    "down.none": ("no server runs in {home}", "{home} 没有正在运行的服务"),
    "down.stopping": ("stopping the server (pid {pid}) …", "正在停止服务（pid {pid}）…"),
    "down.killed": (
        "it did not stop within {seconds:g} s and was killed",
        "{seconds:g} 秒内未停止，已强制结束",
    ),
    "down.done": ("the server is stopped; no agent is left", "服务已停止，没有残留的 agent"),
    "cluster.installing": (
        "installing {name} in namespace {namespace} …",
        "正在命名空间 {namespace} 安装 {name} …",
    ),
    "cluster.upgrading": ("upgrading {name} …", "正在升级 {name} …"),
    "cluster.same": ("nothing would change", "没有变化"),
    "cluster.no_servers": ("no server is there", "没有服务"),
    "cluster.down": (
        "take the servers of {name} out of namespace {namespace}? data stays",
        "从命名空间 {namespace} 移除 {name} 的服务？数据保留",
    ),
    "cluster.purge": (
        "take the servers of {name} out of namespace {namespace}, and delete all tasks and data?",
        "从命名空间 {namespace} 移除 {name} 的服务，并删除所有任务和数据？",
    ),
    "cluster.gone": ("{name} is out of the cluster", "{name} 已从集群移除"),
    "init.done": (
        "profile {profile!r} speaks to {server} as {user}",
        "配置 {profile!r} 已保存：{server}，用户 {user}",
    ),
}


def language() -> str:
    """zh or en, from the environment."""
    chosen = next((os.environ[v] for v in _VARIABLES if os.environ.get(v)), "")
    return "zh" if chosen.lower().startswith("zh") else "en"


def text(key: str, **values: object) -> str:
    """The sentence of that key in the user's language."""
    sentence = TEXTS[key][language() == "zh"]
    return sentence.format(**values) if values else sentence
