"""A stand-in for Google Compute Engine.

Routes, names, types and enums come from Google's discovery document; the behaviour behind them is ours.
"""
