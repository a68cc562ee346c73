"""Decides how a transfer goes: which regions relay, over which links, with which machines, at what rate and cost.

Pure: no I/O, no wall clock, no logging. It is given a catalog and answers with plans. Large searches run in a
child process (`milp.py`).
"""
