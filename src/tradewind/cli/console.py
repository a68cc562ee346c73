"""`tradewind console`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.arguments import typed
from tradewind.cli.config import parse_count
from tradewind.cli.serve import become_server
from tradewind.errors import UsageError
from tradewind.model.files import state_home

USAGE = "[OPTION]…"
HELP = """\
Show a web page for your own transfers: start, follow, pause, resume and cancel them, and list the jobs of the command
line. The page is on this machine only, at a free port of 127.0.0.1. The command opens it in your browser, which is then
signed in. The printed address also signs one browser in, for 10 minutes. Run the command again for another browser: it
uses the running console. Ctrl-C ends the console; its transfers stop at a checkpoint, and the next start continues
them. The command needs the extra `service` (`pip install 'tradewind[service]'`)."""
EXAMPLES = """\
  tradewind console
  tradewind console --no-browser --port 8765"""
PORT_MAX = 65_535


def add_arguments(parser: ArgumentParser) -> None:
    """Add the port, the browser and the number of jobs."""
    parser.add_argument("--no-browser", action="store_true", help="print the address only")
    parser.add_argument(
        "--port", metavar="N", type=typed(parse_count), default=0, help="port of 127.0.0.1 (default: a free one)"
    )
    parser.add_argument(
        "--jobs", metavar="N", type=typed(parse_count), default=8, help="maximum running jobs, 1 to 256 (default 8)"
    )


def run(args: Namespace) -> int:
    """Become the server of the console."""
    if args.port > PORT_MAX:
        raise UsageError(f"--port {args.port}: must be 0 to {PORT_MAX}")
    words = [f"--console={state_home(args.state_dir)}", f"--listen=127.0.0.1:{args.port}", f"--jobs={args.jobs}"]
    become_server(args, [*words, *(["--no-browser"] if args.no_browser else [])])
