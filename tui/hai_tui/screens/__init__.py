"""The pages of the app; hai_tui.page_registry lists them."""
