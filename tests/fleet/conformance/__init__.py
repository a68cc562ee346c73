"""Requirements on every provider, whatever its machines are. `rows.py` has one row per provider."""
