"""Fetch prices from the clouds' own price APIs. Only this package and `fleet` know providers' addresses and field
names.

`fetch` has the HTTP; `aws`, `azure` and `gcp` each convert one provider's answers into `figures`; `run` requests the
prices and stores each provider's figures completely or not at all.
"""
