"""Transfers: from the user's request to a verified end."""
