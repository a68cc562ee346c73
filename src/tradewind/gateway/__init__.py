"""Access to gateways: find the binary, run it, use its control API, enrol gateways in a fleet."""
