"""A sky in a box: machines of many regions as network namespaces on this host, joined by an emulated WAN.

Each machine has its own kernel TCP stack, address and congestion control; `tradewind-wan` (`crates/wan`) carries every
packet between them and gives each link its delay, rate, queue and loss. What runs in a machine is an ordinary process.

::

    from tradewind.sky.running import Sky

    with Sky.up("world.json") as sky:                       # needs root; ends with this block, or with this process
        here, there = sky.machines_in("aws:us-east-1")[0], sky.machines["azure-westus-1"]
        server = sky.popen(there.name, ["tradewind-gateway", "serve", …], stdin=subprocess.PIPE)
        sky.run(here.name, ["ping", "-c", "3", there.address])
        sky.set_link("aws:us-east-1", "azure:westus", rate_mbps=20)     # live, both ways
        sky.freeze(there.name)
        sky.check_valid()                                   # SkyInvalid if the emulator itself was late

- `running.Sky`: start, stop, attach, run processes in machines, change links live, statistics
- `file.read_sky_file`: a sky file → `network.EmulatedNetwork`, the resolved numbers for the emulator
- `control.SkyControl`: the emulator's control socket

Unix sockets with a path cross namespaces, so the host reaches what listens at one in a machine. TCP does not: the host
has no address in the sky.
"""
