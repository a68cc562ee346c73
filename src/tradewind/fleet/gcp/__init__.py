"""Google Compute Engine: its API, its errors, and what the provider asks of it."""
