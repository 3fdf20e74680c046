"""The documentation, checked: examples, documented commands, reference pages, deploy manifests."""
