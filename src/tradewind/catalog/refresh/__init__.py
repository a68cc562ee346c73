"""Asks the clouds' own price APIs. The only place below `fleet` that knows a provider's addresses and field names.

`fetch` is the HTTP of it, `aws`, `azure` and `gcp` each read one provider's answers into `figures`, `run` asks what the
user wants asked and stores each provider's figures whole or not at all.
"""
