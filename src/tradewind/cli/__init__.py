"""The command line: one file per verb. Nothing here is imported before its verb is named, so that it feels instant."""

#: Verb → what it does, in the order of `--help`. The file of a verb is `cli/VERB.py`.
VERBS = {
    "cp": "copy one object, or with -r everything below a prefix",
    "sync": "copy what differs; with --delete also delete what the source does not have",
    "mv": "copy, then delete each source object whose copy is proven",
    "ls": "list",
    "du": "count objects and bytes",
    "rm": "delete one object, or with -r everything below a prefix",
    "cat": "write objects to standard output",
    "check": "compare two trees",
    "plan": "plan a transfer between regions: relays, machines, rate and cost",
    "catalog": "show regions, prices and links; import better figures",
    "jobs": "list, follow, pause, resume and cancel jobs",
    "measure": "measure the rate of links with probes between gateways",
    "fleet": "list and end machines that transfers started",
    "doctor": "check this installation, credentials and stores, and say how to fix problems",
    "sky": "run machines of many regions on this host, joined by an emulated WAN (root)",
    "config": "show each setting and its origin",
    "demo": "race a planned overlay against the direct path, kill a relay, prove every byte",
    "completion": "print the completion script of a shell",
}

#: The exit codes, as every help shows them.
EXIT_CODES = """\
exit codes:
  0    done
  1    failed
  2    usage
  3    source not found (an empty prefix too, unless --allow-empty)
  4    some objects failed; the others are done and proven
  5    only errors that may go away with a retry
  6    verification mismatch
  7    not authorised
  8    stopped by the cost or size ceiling
  9    not possible on this machine (a sky needs root and /dev/net/tun)
  130  interrupted, resumable"""
