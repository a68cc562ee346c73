"""Active probes between gateways: what links carry, how long a round trip takes, what gets lost.

- `schedule`: which probes run at the same time. Pure
- `probe`: one probe between two running gateways
- `campaign`: a fleet, all probes in their order, cost and budget
"""
