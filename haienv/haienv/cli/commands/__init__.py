"""Contains one module for each group of commands, which is imported when one of them runs."""
