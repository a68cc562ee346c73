"""Machines: started for one plan, leased, and ended again, whoever dies.

- `provider`: what every provider must do (the conformance suite `tests/fleet/conformance.py` is its law)
- `fleet`: the machines of one plan as a desired state that a provider reconciles
- `journal`: what is written down of each fleet, so that what a crashed client left is found
- `processes`, `local`, `sky`: gateways as processes of this machine, and in the machines of an emulated WAN
"""
