"""Gateways as pods: the objects of a machine, the calls of a cluster, and what refusals mean."""
