"""Measurements side by side with the peers: ``python -m benchmarks local|chain``; see docs/benchmarks.md."""
