"""Planning for people: the Python API over catalog and planner, plans in words, and plans as pictures.

Loads the user's catalog and writes files, which `planner` never does.
"""
