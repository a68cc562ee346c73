"""Benchmarks against comparable programs: ``python -m benchmarks local|chain``; see docs/benchmarks.md."""
