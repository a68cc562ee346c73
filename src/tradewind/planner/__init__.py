"""Decides how a transfer goes: which regions relay, over which links, with which machines, at what rate and cost.

Pure: no I/O, no clock of its own, no logging. It is given a catalog and answers with plans.
"""
