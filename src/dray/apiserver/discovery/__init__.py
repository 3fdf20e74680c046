"""Discovery: groups, versions and resources, and their OpenAPI documents."""
