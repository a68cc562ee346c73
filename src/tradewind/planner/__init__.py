"""Decides how a transfer runs: which regions relay, over which links, with which machines, at what rate and cost.

Pure: no I/O, no wall clock, no logging. It gets a catalog and returns plans. Large searches run in a child process
(`milp.py`).
"""
