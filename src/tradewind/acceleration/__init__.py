"""Flow acceleration: TCP flows through split proxies, on machines of a fleet and for a command."""
