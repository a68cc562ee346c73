"""Machines: launched for one plan, leased, and ended again, whoever dies.

- `provider`: what every provider must do; `providers` has one file for each (docs/guides/add-a-provider.md)
- `fleet`: the machines of one plan as a desired state; `launching`, `readiness`, `leases` and `ending` are its parts
- `home`: the lead, which runs beside the client and is no machine
- `journal`: the record of each fleet, so that what a crashed client left is found
- `processes`: what providers have in common whose machines are processes of this host
"""
