"""Machines in Azure: the parts of `providers/azure.py`."""
