"""One module a page; see hai_tui.page_registry for the table."""
