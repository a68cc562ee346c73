"""The transfer service: jobs of many tenants on shared sites."""
