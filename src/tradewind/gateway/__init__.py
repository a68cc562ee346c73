"""Reaching gateways: find the binary, run a process of it, speak its control API, make its identities."""
