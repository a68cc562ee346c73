"""Flow acceleration: TCP flows through split proxies, in an emulated WAN and for a command."""
