"""Real servers and real faults for the tests and the benchmarks.

``servers`` installs and starts object-store servers on loopback; ``faults`` puts a misbehaving proxy in front of one,
or between two gateways; ``odd_stores`` is a store of our own that breaks its protocol on request; ``s3`` and ``azure``
are minimal clients with which tests inspect a store independently of Tradewind's code. Everything here needs only the
standard library.
"""
