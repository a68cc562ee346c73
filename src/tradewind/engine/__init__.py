"""The engine: proposes, starts and attaches to jobs. The command line, Python and services are adapters of it."""
