"""Transfers: from what the user asked for to a verified end."""
