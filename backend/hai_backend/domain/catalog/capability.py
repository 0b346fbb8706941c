"""The capabilities of Linux: what parts of root's power are called (capabilities(7), without CAP_)."""

from __future__ import annotations

from difflib import get_close_matches

_NAMES = """
AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE CHOWN DAC_OVERRIDE
DAC_READ_SEARCH FOWNER FSETID IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN
MAC_OVERRIDE MKNOD NET_ADMIN NET_BIND_SERVICE NET_BROADCAST NET_RAW PERFMON SETFCAP SETGID
SETPCAP SETUID SYSLOG SYS_ADMIN SYS_BOOT SYS_CHROOT SYS_MODULE SYS_NICE SYS_PACCT SYS_PTRACE
SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG WAKE_ALARM
"""
CAPABILITIES = frozenset(_NAMES.split())


def fault(name: str) -> str:
    """Why there is no such capability; empty when there is."""
    if name in CAPABILITIES:
        return ""
    near = get_close_matches(name.upper().removeprefix("CAP_"), sorted(CAPABILITIES), n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ", as IPC_LOCK is"
    return f"{name[:40]!r} is no capability of Linux{hint}"
