"""Machines: launched and leased for one plan, and always ended, even if the client crashes.

- `provider`: what every provider must do; `providers` has one file for each (docs/guides/add-a-provider.md)
- `fleet`: the machines of one plan as a desired state; `orders`, `launching`, `enrolment`, `readiness`,
  `leases` and `ending` are its parts
- `home`: the lead, which runs beside the client and is not a machine
- `journal`: the record of each fleet, by which the machines of a crashed client are found
- `processes`: the common base of providers whose machines are processes of this host
"""
