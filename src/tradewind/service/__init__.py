"""The transfer service: jobs of many tenants over an HTTP API, run by the engine. `tradewind serve` starts it."""
