"""What every provider must do, whatever its machines are: one row per provider in `rows.py`."""
