"""Compare TCP over an emulated WAN with theory: `python -m benchmarks.sky` (root)."""
