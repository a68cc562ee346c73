"""Benchmarks of the transfer service."""
