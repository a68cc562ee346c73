"""Knows the world: packaged, imported, refreshed and learned figures become one `model.Catalog`."""
