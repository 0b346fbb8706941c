"""Renders the proxy's own pages in English and Chinese. Texts of users are escaped."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from html import escape

TEXTS = {
    "login": (
        "You are not signed in here",
        "在此处尚未登录",
        "Run `hai container open ID` and open the link that it prints. A link works once, within a minute.",
        "请运行 `hai container open ID` 并打开它给出的链接。链接一分钟内有效，只能使用一次。",
    ),
    "link": (
        "This link is no longer valid",
        "该链接已失效",
        "A link works once, within a minute. Run `hai container open ID` again.",
        "链接一分钟内有效，只能使用一次。请重新运行 `hai container open ID`。",
    ),
    "nothing": (
        "Not found",
        "此处没有内容",
        "The address is wrong, or you no longer have access to it.",
        "地址有误，或者它指向的内容已不属于你。",
    ),
    "foreign": (
        "Refused",
        "请求被拒绝",
        "A page of another origin sent this request in your name.",
        "另一个来源的页面以你的名义发起了此请求。",
    ),
    "waiting": ("Waiting in the queue", "正在排队", "", ""),
    "starting": ("Starting", "正在启动", "", ""),
    "away": (
        "Stopped",
        "已停止",
        "Its files are kept. `hai container start {id}` starts it again at this address.",
        "文件已保留。运行 `hai container start {id}` 即可在同一地址恢复。",
    ),
    "finished": (
        "It has ended",
        "已结束",
        "It no longer runs and will not be started again.",
        "它已经结束，不会再启动。",
    ),
    "broken": (
        "It does not answer",
        "服务没有响应",
        "`hai container logs {id}` shows what it printed; `hai container restart {id}` starts it again.",
        "运行 `hai container logs {id}` 查看输出；运行 `hai container restart {id}` 重新启动。",
    ),
    "full": (
        "Too many connections",
        "连接过多",
        "Close some tabs of this container.",
        "请关闭该容器的一些标签页。",
    ),
}
"""By key: the title in English and Chinese, and the advice in English and Chinese."""

_LABELS = {
    "en": {"why": "Why", "when": "When", "place": "Position in the queue"},
    "zh": {"why": "原因", "when": "预计", "place": "排队位置"},
}

CSP = (
    "default-src 'none'; style-src 'nonce-{0}'; script-src 'nonce-{0}'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:38rem;margin:12vh auto;padding:0 1.25rem}
h1{font-size:1.4rem;margin:.2rem 0 1rem}h2{font-size:1rem;font-weight:500;opacity:.75;margin:0}
dt{opacity:.7;margin-top:.75rem}dd{margin:0}code{font:.9em ui-monospace,monospace}
.dot{display:inline-block;width:.6rem;height:.6rem;border-radius:50%;background:#1f6feb}
.dot{margin-right:.6rem;animation:p 1.2s infinite alternate}
@keyframes p{to{opacity:.2}}@media (prefers-reduced-motion:reduce){.dot{animation:none}}
"""

_SCRIPT = """
const labels = JSON.parse(document.getElementById('labels').textContent);
const show = s => {
  document.querySelector('h1 span').textContent = s.title;
  document.title = s.title + ' · ' + s.name;
  document.getElementById('advice').textContent = s.advice;
  const list = document.querySelector('dl');
  list.replaceChildren();
  for (const key of ['why', 'place', 'when']) if (s[key]) {
    const dt = document.createElement('dt'), dd = document.createElement('dd');
    dt.textContent = labels[key];
    dd.textContent = s[key];
    list.append(dt, dd);
  }
  if (s.ready) location.reload();
};
const source = new EventSource(document.body.dataset.events);
source.onmessage = event => show(JSON.parse(event.data));
"""


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a task on its waiting page. The page reloads itself if `ready` is set."""

    key: str  # of TEXTS
    task_id: int
    name: str
    title: str
    advice: str
    why: str = ""
    place: str = ""
    when: str = ""
    ready: bool = False

    def as_json(self) -> str:
        """Serialize the status for the script of the page."""
        return json.dumps(asdict(self), ensure_ascii=False)


def choose_language(accept_language: str) -> str:
    """Return zh or en for an Accept-Language header."""
    first = accept_language.split(",")[0].strip().lower()
    return "zh" if first.startswith("zh") else "en"


def texts(key: str, language_code: str, task_id: int = 0) -> tuple[str, str]:
    """Return the title and the advice of a page."""
    row, index = TEXTS[key], int(language_code == "zh")
    return row[index], row[2 + index].replace("{id}", str(task_id))


def static_page(key: str, language_code: str, nonce: str, more: str = "") -> str:
    """Render a page that does not update itself."""
    title, advice = texts(key, language_code)
    body = f"<h1>{escape(title)}</h1><p>{_render_code(advice)}</p>"
    return _render(language_code, nonce, title, body + (f"<p>{escape(more)}</p>" if more else ""))


def live_page(status: Status, language_code: str, nonce: str, events: str) -> str:
    """Render a page that follows the status of a task, and reloads itself when the service is ready."""
    labels = json.dumps(_LABELS[language_code], ensure_ascii=False)
    rows = "".join(
        f"<dt>{escape(_LABELS[language_code][key])}</dt><dd>{escape(value)}</dd>"
        for key, value in (("why", status.why), ("place", status.place), ("when", status.when))
        if value
    )
    body = (
        f"<h2>{escape(status.name)} · {status.task_id}</h2>"
        f'<h1><i class="dot"></i><span>{escape(status.title)}</span></h1>'
        f'<dl aria-live="polite">{rows}</dl><p id="advice">{escape(status.advice)}</p>'
        f'<script type="application/json" id="labels" nonce="{nonce}">{_escape_script(labels)}</script>'
        f'<script nonce="{nonce}">{_SCRIPT}</script>'
        '<noscript><meta http-equiv="refresh" content="5"></noscript>'
    )
    return _render(language_code, nonce, f"{status.title} · {status.name}", body, events)


def _render(language_code: str, nonce: str, title: str, body: str, events: str = "") -> str:
    return (
        f'<!doctype html><html lang="{language_code}"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<title>{escape(title)}</title><style nonce="{nonce}">{_STYLE}</style>'
        f'<body data-events="{escape(events)}">{body}</body></html>'
    )


def _render_code(text: str) -> str:
    """Render text in backticks as code."""
    parts = [escape(part) for part in text.split("`")]
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts))


def _escape_script(text: str) -> str:
    return text.replace("<", "\\u003c")
