"""What clients ask first: groups and versions, resources, OpenAPI."""
