"""`tradewind receipt verify`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from tradewind.errors import UsageError

USAGE = "[OPTION]… verify FILE"
HELP = """\
Verify that a transfer service signed a receipt, and that nobody has changed the receipt since. With --key this works
offline. --from fetches the keys from the service, and so trusts the server at that address. The address has https,
or is that of this host.

With --objects, also verify that a file is the list of objects and checksums that the receipt names."""
EXAMPLES = """\
  curl -H "Authorization: Bearer $TOKEN" https://transfers.example.org/v1/jobs/JOB/receipt > receipt.json
  curl https://transfers.example.org/v1/keys > keys.json
  tradewind receipt verify receipt.json --key keys.json
  tradewind receipt verify receipt.json --from https://transfers.example.org --objects objects.jsonl"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, the receipt and where its key comes from."""
    parser.add_argument("action", metavar="ACTION", choices=["verify"], help="verify")
    parser.add_argument("file", metavar="FILE", help="receipt, as `/v1/jobs/JOB/receipt` returns it")
    parser.add_argument("--key", metavar="FILE", help="public keys, as `/v1/keys` returns them")
    parser.add_argument("--from", metavar="URL", dest="service", help="address of the service, to fetch its keys")
    parser.add_argument("--objects", metavar="FILE", help="list of objects, as `/v1/jobs/JOB/objects.jsonl` returns it")


def run(args: Namespace) -> int:
    """Verify a receipt. Exit code 6 if it does not match."""
    from tradewind.engine.signed_receipt import check_object_list, keys_from, read_keys, read_receipt, verify_receipt

    if (args.key is None) == (args.service is None):
        raise UsageError(
            "a receipt is verified with --key FILE or --from URL", hint="`curl SERVICE/v1/keys` prints the keys"
        )
    try:
        receipt = read_receipt(args.file)
        key = verify_receipt(receipt, read_keys(args.key) if args.key is not None else keys_from(args.service))
        if args.objects is not None:
            check_object_list(receipt, args.objects)
    except FileNotFoundError as error:
        raise UsageError(
            f"{error.filename}: {error.strerror}", hint="`tradewind receipt --help` names the files"
        ) from None
    if args.json:
        print(json.dumps({"valid": True, "key": key, "job_id": receipt.get("job_id"), "state": receipt.get("state")}))
    else:
        print(f"valid: job {receipt.get('job_id')} is {receipt.get('state')}, signed by key {key}")
    return 0
