"""The command line: one file per verb. A verb's file is imported only when the verb is used, for a fast start."""

#: Description of each verb, in the order of `--help`. The file of a verb is `cli/VERB.py`.
VERBS = {
    "cp": "copy one object, or with -r everything below a prefix",
    "sync": "copy objects that differ; with --delete also delete those that the source does not have",
    "mv": "copy, then delete each source object whose copy is proven",
    "ls": "list objects, or the buckets of an account",
    "du": "count objects and bytes",
    "stat": "show size, time, checksums and metadata of one object",
    "presign": "print an address that reads one object without credentials",
    "rm": "delete objects, or with -r everything below a prefix",
    "cat": "write objects to standard output",
    "mb": "make a bucket or container",
    "rb": "remove an empty bucket or container",
    "check": "compare two trees",
    "plan": "plan a transfer between regions: relays, machines, rate and cost",
    "accelerate": "place split proxies for TCP flows under a budget",
    "market": "show the price range of a transfer service, and simulate its market",
    "catalog": "show regions, prices and links; import your own figures",
    "jobs": "list, follow, pause, resume and cancel jobs",
    "measure": "measure the rate of links with probes between gateways",
    "fleet": "list and end machines that transfers started",
    "serve": "run the transfer service: an HTTP API for jobs of many tenants",
    "console": "show a web page for your own transfers, on this machine only",
    "send": "send a file or folder to a site of a transfer service",
    "receive": "receive data from a site of a transfer service",
    "receipt": "verify a signed receipt of a transfer service",
    "init": "find hosts that can run gateways, and check the hosts and clouds of the configuration",
    "doctor": "check this installation, credentials and stores, and say how to fix problems",
    "sky": "run machines of many regions on this host, joined by an emulated WAN (root)",
    "config": "show each setting with its value and origin",
    "demo": "race a planned overlay against the direct path, kill a relay, prove every byte",
    "completion": "print the completion script of a shell",
}

#: Other names of verbs.
ALIASES = {"head": "stat"}

#: The table of exit codes that ends every help text.
EXIT_CODES = """\
exit codes:
  0    done
  1    failed
  2    usage
  3    not found: the source (or it is empty, without --allow-empty), or a job or fleet of this name
  4    some objects failed; the others are done and proven
  5    only temporary errors: a retry may succeed
  6    verification mismatch
  7    not authorised
  8    stopped by the cost or size ceiling
  9    done and proven, but after the deadline (--deadline)
  10   done and proven, but rented machines may still run
  11   not possible on this machine (a sky needs root and /dev/net/tun)
  130  interrupted, resumable"""
