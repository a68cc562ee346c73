"""Active probes between gateways: rate and round trip of links, and their share of retransmitted segments.

- `schedule`: which probes run at the same time. Pure
- `probe`: one probe between two running gateways
- `campaign`: a fleet that runs all probes, with cost and budget
"""
