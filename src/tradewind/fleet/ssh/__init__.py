"""The user's own hosts over SSH: where they are, how they are reached, and what is run on them."""
