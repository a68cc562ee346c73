"""The figures of "Transfer as a Service", measured in the emulated WAN."""
