"""What the pages of dev containers and of services say."""

from __future__ import annotations

TEXTS: dict[str, tuple[str, str]] = {
    "page.containers": ("containers", "开发容器"),
    "page.containers.about": ("dev containers: JupyterLab on the cluster", "集群上的 JupyterLab"),
    "page.services": ("services", "服务"),
    "page.services.about": ("what runs beside a task's program", "与任务程序一同运行的服务"),
    "kind.containers": ("a dev container", "开发容器"),
    "kind.services": ("a service", "服务"),
    "do.link": ("a link for a browser", "浏览器链接"),
    "do.start": ("start", "启动"),
    "do.stop": ("stop", "停止"),
    "do.restart": ("restart", "重启"),
    "do.putaway": ("put away", "收起"),
    "do.renew": ("renew its lifetime", "续期"),
    "do.erase": ("delete with its files", "连同文件删除"),
    "container.link": (
        "Open this in a browser, once, within a minute. Whoever has it first is let in as you.\n\n"
        "{link}\n\nThe address stays the same:\n{url}",
        "请在一分钟内用浏览器打开，仅一次有效；先打开者将以您的身份进入。\n\n{link}\n\n固定地址：\n{url}",
    ),
    "field.kind": ("kind", "类型"),
    "field.kind.hint": (
        "shared, dedicated or spot; empty: as the group is",
        "shared、dedicated 或 spot；留空随分组",
    ),
    "field.gpu": ("GPUs of a share", "共享 GPU 数"),
    "field.cpu": ("CPUs of a share", "共享 CPU 数"),
    "field.memory": ("memory of a share, GB", "共享内存（GB）"),
    "field.image": ("image", "镜像"),
    "field.py_venv": ("environment", "环境"),
    "field.lifetime": ("put away after", "存续时间"),
    "field.lifetime.hint": ("12h, 2d; empty: never", "12h、2d；留空为不限"),
    "field.idle_timeout": ("or unused for", "或闲置"),
    "field.idle_timeout.hint": ("2h; empty: never", "2h；留空为不限"),
}
