"""What an emulated WAN does to TCP, beside what theory says: `python -m benchmarks.sky` (root)."""
