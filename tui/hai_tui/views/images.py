"""Columns of images, of checked images and of registries."""

from __future__ import annotations

from hai_tui.formatting.table import Column, View

IMAGES = View(
    key="images",
    name=lambda image: image.name,
    empty="none.images",
    columns=(
        Column("name", lambda i, now: i.name),
        Column("reference", lambda i, now: i.reference, folds=True),
        Column("default", lambda i, now: "yes" if i.is_default else "-"),
        Column("user_groups", lambda i, now: ",".join(i.user_groups) or "all"),
        Column("description", lambda i, now: i.description or "-", wide=True, folds=True),
    ),
)

CHECKS = View(
    key="images",
    name=lambda check: check.pinned,
    columns=(
        Column("image", lambda c, now: c.image),
        Column("reference", lambda c, now: c.reference, folds=True),
        Column("digest", lambda c, now: c.digest),
    ),
)

REGISTRIES = View(
    key="registries",
    name=lambda registry: registry.prefix,
    empty="none.registries",
    columns=(
        Column("prefix", lambda r, now: r.prefix),
        Column("username", lambda r, now: r.username or "-"),
        Column("password", lambda r, now: "stored" if r.has_password else "none"),
        Column("tls", lambda r, now: "no" if r.plain_http else "yes"),
        Column("pull_secret", lambda r, now: r.pull_secret or "-"),
    ),
)
