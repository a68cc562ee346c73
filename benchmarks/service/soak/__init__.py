"""A soak of the transfer service: a day of load and faults in minutes, and then its invariants."""
