"""Stand-ins for the APIs of clouds. Their behaviour is ours; names, types and routes are those of the clouds."""
