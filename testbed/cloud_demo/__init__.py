"""`tradewind demo --cloud`: a transfer between stand-ins of two clouds, with machines that really boot.

- `stage`: the stand-ins of AWS and Google Cloud on one private network, the stores, and the user's configuration
- `__main__`: the story, which the command runs
"""
