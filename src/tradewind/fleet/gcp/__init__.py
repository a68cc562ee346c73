"""Google Compute Engine: its API, its errors, and the parts of `providers/gcp.py`."""
