"""Discovery: groups, versions and resources, their OpenAPI documents, and the other paths that name no resource."""
