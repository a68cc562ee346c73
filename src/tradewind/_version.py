"""The version, alone in its file so that `tradewind --version` need import nothing else."""

__version__ = "0.1.0"
