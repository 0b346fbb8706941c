"""Messages of the page that submits a task."""

from __future__ import annotations

TEXTS: dict[str, tuple[str, str]] = {
    "page.submit": ("submit", "提交"),
    "page.submit.about": (
        "a new task: form, yaml, and what the server says of it",
        "新任务：表单、yaml 与服务端检查",
    ),
    "submit.leave": (
        "Leave? What was written here is not kept (f5 saves it as a file).",
        "离开？已填写的内容不会保留（f5 可保存为文件）。",
    ),
    "submit.send": ("submit", "提交"),
    "submit.yaml": ("form or yaml", "表单或 yaml"),
    "submit.reset": ("begin again", "重新开始"),
    "submit.load": ("load a file", "读取文件"),
    "submit.save": ("save as a file", "保存为文件"),
    "submit.ask.load": ("yaml file", "yaml 文件"),
    "submit.ask.save": ("save to", "保存到"),
    "submit.cannot_read": ("cannot read {path}: {error}", "无法读取 {path}：{error}"),
    "submit.checking": ("… the server is asked", "… 正在请求服务端检查"),
    "submit.unreachable": (
        "○ the server does not answer; it is asked again as soon as it is back",
        "○ 服务无应答；恢复后将重新检查",
    ),
    "submit.beside": (
        "✗ {count} to correct, beside the lines above",
        "✗ {count} 处需要修改，见上方各行",
    ),
    "submit.broken": ("correct first what is marked with ✗", "请先修改标有 ✗ 的内容"),
    "submit.status": (
        "enter or tab: next line · bold: other than the task it began with · everything else is in the yaml",
        "回车或 tab：下一行 · 加粗：与起始任务不同 · 其余内容写在 yaml 中",
    ),
    "submit.name": ("name", "名称"),
    "submit.spec.entrypoint": ("program", "程序"),
    "submit.spec.parameters": ("parameters", "参数"),
    "submit.spec.environments": ("variables", "环境变量"),
    "submit.spec.environments.example": ("such as SEED=7", "例如 SEED=7"),
    "submit.spec.workspace": ("directory", "工作目录"),
    "submit.resource.group": ("node group", "节点分组"),
    "submit.resource.node_count": ("nodes", "节点数"),
    "submit.resource.gpu": ("GPUs of a node", "每节点 GPU"),
    "submit.resource.cpu": ("CPUs of a node", "每节点 CPU"),
    "submit.resource.memory": ("memory of a node (GB)", "每节点内存（GB）"),
    "submit.resource.is_spot": ("spot", "可抢占"),
    "submit.resource.image": ("image", "镜像"),
    "submit.priority": ("priority", "优先级"),
    "submit.options.py_venv": ("environment", "Python 环境"),
    "submit.options.mount_code": ("mounts (code)", "挂载（代码）"),
    "submit.options.mount_code.example": ("2: the usual ones", "2：默认集合"),
    "submit.services": ("services", "服务"),
    "submit.services.example": (
        "such as board http 6006 tensorboard --logdir runs",
        "例如 board http 6006 tensorboard --logdir runs",
    ),
    "submit.options.tags": ("tags", "标签"),
    "submit.options.after": ("after tasks", "在任务之后"),
    "submit.options.after.example": (
        "such as 12, 12:failed or 12:ended",
        "例如 12、12:failed 或 12:ended",
    ),
    "submit.unread.after": (
        "is no number of a task, alone or with :failed or :ended",
        "不是任务编号（可加 :failed 或 :ended）",
    ),
    "submit.options.time_limit": ("time limit", "时间上限"),
    "submit.options.max_retries": ("retries", "重试次数"),
    "submit.options.whole_life_state": ("whole-life state", "全程状态值"),
    "submit.options.watchdog_time": ("watchdog (s)", "看门狗（秒）"),
    "submit.task_type": ("type", "类型"),
}
