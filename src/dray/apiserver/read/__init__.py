"""Get and list requests: pages, label and field selectors, tables, metadata-only answers."""
