"""Real servers and real faults for the tests and the benchmarks.

``servers`` installs and starts object-store servers on loopback; ``faults`` puts a misbehaving proxy in front of one,
or between two gateways; ``odd_stores`` is a store of our own that breaks its protocol on request; ``s3`` and ``azure``
are the smallest clients that a test needs to look at a store with eyes other than Tradewind's own. Nothing here needs
more than the standard library.
"""
