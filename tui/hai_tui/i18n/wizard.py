"""What the first start says. A table, so it is long."""

from __future__ import annotations

TEXTS: dict[str, tuple[str, str]] = {
    "wizard.title": ("Welcome to HAI Platform", "欢迎使用 HAI 平台"),
    "wizard.about": (
        "No server is known on this machine yet. Connect to the server of your cluster, or start one here.",
        "本机尚未配置服务。连接集群的服务，或在本机启动一个。",
    ),
    "wizard.server": ("Server (host:port)", "服务地址（host:port）"),
    "wizard.token": (
        "Token (from `hai token create`, or your admin; it is stored, never shown)",
        "令牌（由 `hai token create` 或管理员提供；只保存，不显示）",
    ),
    "wizard.connect": ("Connect", "连接"),
    "wizard.up": ("Start a server here", "在本机启动服务"),
    "wizard.quit": ("Quit", "退出"),
    "wizard.trying": ("asking {server} who you are …", "正在询问 {server} …"),
    "wizard.starting": (
        "starting a server on this machine (`hai up`) …",
        "正在本机启动服务（`hai up`）…",
    ),
    "wizard.no.server": (
        "write the server's address first, such as hai.example.org:7450",
        "请先填写服务地址，例如 hai.example.org:7450",
    ),
    "wizard.keys": ("tab goes on · enter presses · esc leaves", "tab 下一项 · 回车确认 · esc 退出"),
    "wizard.insecure": (
        "plain text, without TLS (only for a network that you trust)",
        "明文传输，不使用 TLS（仅限可信网络）",
    ),
}
