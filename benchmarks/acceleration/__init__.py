"""The figures of the CloudPilot paper: ``python -m benchmarks.acceleration``."""
