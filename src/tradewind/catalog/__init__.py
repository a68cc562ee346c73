"""The catalog: combines packaged, imported, refreshed and learned figures into one `model.Catalog`."""
