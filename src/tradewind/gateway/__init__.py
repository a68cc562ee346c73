"""Access to gateways: find the binary, run a process of it, use its control API, let gateways into a fleet."""
