"""The version, in its own file so that `tradewind --version` imports nothing else."""

__version__ = "0.1.0"
