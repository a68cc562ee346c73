"""Stand-ins for the clouds that rent out machines: the API is a stand-in, the machines are real."""
