"""One module per revision, in order. A released revision is never edited."""
