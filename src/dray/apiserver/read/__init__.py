"""Get and list: selectors, storage conversion, tables, metadata-only answers."""
