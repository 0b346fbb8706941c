"""One module a page; see hai_tui.pages for the table."""
