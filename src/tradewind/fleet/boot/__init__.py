"""User data with which a rented machine becomes a gateway of a fleet."""
