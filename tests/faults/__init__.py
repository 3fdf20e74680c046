"""One fault at a time, on purpose: the smallest cluster that shows it."""
