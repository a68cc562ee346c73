"""`tradewind serve`, and the start of the server for `tradewind console`."""

from __future__ import annotations

import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from typing import NoReturn

from tradewind.cli.arguments import typed
from tradewind.cli.config import parse_count
from tradewind.errors import UsageError
from tradewind.model.units import parse_usd

USAGE = "[OPTION]… --state DIR"
HELP = """\
Run the transfer service: an HTTP API to which tenants submit jobs. The first start makes a database and an admin token
in DIR/admin.token. Jobs may use only the folders of --allow-path and the buckets of --allow-store, the latter with the
credentials of the server. In both, `{tenant}` stands for the name of the job's tenant; places without it are for the
jobs of all tenants. After a stop or a crash, the next start continues the jobs. Several servers can share one
PostgreSQL database and one state folder: if one ends, the others continue its jobs. The command needs the extra
`service` (`pip install 'tradewind[service]'`), and for --database also the extra `postgresql`."""
EXAMPLES = """\
  tradewind serve --state /var/lib/tradewind --allow-path /data
  tradewind serve --state /var/lib/tradewind --allow-path '/data/{tenant}' --allow-path /data/public
  tradewind serve --state /shared/tradewind --database postgresql://tradewind@localhost/tradewind
  tradewind serve --state /var/lib/tradewind --listen 127.0.0.1:9000 --allow-store s3://bucket/shared/
  tradewind serve --state /var/lib/tradewind --migrate"""

#: Options that the server gets as they are: with a value, or several, and without.
VALUES = (
    *(
        "state",
        "listen",
        "jobs",
        "lease",
        "database",
        "allow_path",
        "allow_store",
        "allow_endpoint",
        "site",
        "guest_address",
    ),
    *("oidc", "oidc_audience", "oidc_tenant_claim", "oidc_role_claim", "oidc_role", "oidc_tenant"),
    *("key_file", "allow_webhook_network", "traces", "tune_links", "via", "max_cost", "max_vms"),
)
SWITCHES = ("behind_proxy", "share_keys", "migrate", "new_admin_token")
#: Program of the server. Unlike `python -m`, it imports nothing from the working directory, where others may write.
SERVER = """\
import sys
del sys.path[0]
try:
    import signal
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    from tradewind.service.__main__ import main
    sys.exit(main())
except KeyboardInterrupt:
    sys.exit(130)
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the state folder, the address, and what jobs may use."""
    _add_server(parser)
    _add_places(parser)
    parser.add_argument(
        "--jobs", metavar="N", type=typed(parse_count), default=8, help="maximum running jobs, 1 to 256 (default 8)"
    )
    parser.add_argument(
        "--tune-links",
        choices=("on", "off"),
        default="on",
        help="decide for each link how many jobs run at once, by its goodput and errors (default on)",
    )
    parser.add_argument(
        "--behind-proxy", action="store_true", help="listen on any address: a proxy with TLS is in front"
    )
    _add_machines(parser)
    _add_oidc(parser)
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        help="key that encrypts tenants' secrets (default DIR/service.key, made if missing)",
    )
    parser.add_argument(
        "--allow-webhook-network",
        metavar="CIDR",
        action="append",
        default=[],
        help="network of private or loopback addresses that webhooks may use; repeatable",
    )
    parser.add_argument(
        "--traces",
        metavar="URL",
        help="OpenTelemetry collector that gets spans of requests and jobs by OTLP over HTTP, e.g. http://localhost:4318",
    )
    parser.add_argument("--migrate", action="store_true", help="update the database to this version, and exit")
    parser.add_argument(
        "--new-admin-token",
        action="store_true",
        help="replace the admin token, also while a server runs, and exit",
    )


def _add_server(parser: ArgumentParser) -> None:
    parser.add_argument("--state", metavar="DIR", required=True, help="folder of the database and the jobs")
    parser.add_argument(
        "--database",
        metavar="URL",
        help="postgresql://…, for several servers; the password is in PGPASSWORD, or the file of PGPASSFILE",
    )
    parser.add_argument(
        "--lease",
        metavar="SECONDS",
        type=typed(parse_count),
        default=15,
        help="time after which the jobs of a server that has died are adopted, 2 to 600 (default 15)",
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", default="127.0.0.1:8080", help="address (default 127.0.0.1:8080; port 0: any)"
    )


def _add_places(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--allow-path",
        metavar="DIR",
        action="append",
        default=[],
        help="local folder that jobs may use, such as /data/{tenant} for one folder per tenant; repeatable",
    )
    parser.add_argument(
        "--allow-store",
        metavar="URL",
        action="append",
        default=[],
        help="bucket or prefix that jobs may use, such as s3://bucket/{tenant}/; repeatable",
    )
    parser.add_argument(
        "--allow-endpoint",
        metavar="URL",
        action="append",
        default=[],
        help="S3-compatible server that tenants' connections may name; repeatable",
    )
    parser.add_argument(
        "--site",
        metavar="NAME=PLACE",
        action="append",
        default=[],
        help="name of a place for `tradewind send` and `receive`; each tenant has a part of it; repeatable",
    )
    parser.add_argument(
        "--guest-address",
        metavar="IP",
        action="append",
        default=[],
        help="address at which hosts that send and receive reach gateways of this machine (default that of --listen); "
        "repeatable: each further one is a route to them",
    )


def _add_machines(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--via",
        choices=("auto", "fleet", "here"),
        default="here",
        help="where jobs between stores run: on the hosts and clouds of the configuration if that is faster (auto) or "
        "always (fleet), or on this machine (default here)",
    )
    parser.add_argument(
        "--max-cost",
        metavar="USD",
        type=typed(parse_usd),
        help="with --via auto or fleet: ceiling of each job; jobs may set lower ones (default: each job needs its own)",
    )
    parser.add_argument(
        "--max-vms",
        metavar="N",
        type=typed(parse_count),
        help="with --via auto or fleet: the most machines of a job in each region",
    )
    parser.add_argument(
        "--share-keys",
        action="store_true",
        help="with --via auto or fleet: send machines the credentials of stores and connections as they are, without "
        "limits",
    )


def _add_oidc(parser: ArgumentParser) -> None:
    parser.add_argument("--oidc", metavar="ISSUER", help="URL of an OIDC issuer whose tokens are accepted")
    parser.add_argument("--oidc-audience", metavar="NAME", help="audience that OIDC tokens must have")
    parser.add_argument(
        "--oidc-tenant-claim", metavar="CLAIM", default="tenant", help="claim with the tenant (default tenant)"
    )
    parser.add_argument(
        "--oidc-role-claim", metavar="CLAIM", default="roles", help="claim with the roles (default roles)"
    )
    parser.add_argument(
        "--oidc-role", metavar="VALUE=ROLE", action="append", default=[], help="role for a value; repeatable"
    )
    parser.add_argument(
        "--oidc-tenant",
        metavar="VALUE=TENANT",
        action="append",
        default=[],
        help="tenant for a value (default: the value is the tenant's name); repeatable",
    )


def run(args: Namespace) -> int:
    """Become the server."""
    parts = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.exporter.otlp")
    if args.traces and not all(map(find_spec, parts)):
        needed = "opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http"
        raise UsageError(f"--traces needs {needed}", hint="install tradewind[service]")
    words = [f"--sites-file={args.configuration.path}"] if args.via != "here" else []
    for name in VALUES:
        value = getattr(args, name)
        words += [
            f"{_option(name)}={one}" for one in (value if isinstance(value, list) else [value]) if one is not None
        ]
    become_server(args, [*words, *(_option(name) for name in SWITCHES if getattr(args, name))])


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def become_server(args: Namespace, words: list[str]) -> NoReturn:
    """Replace this process by the server with these options. Raises UsageError if a library is missing."""
    missing = [
        name
        for name in ("alembic", "cryptography", "fastapi", "joserfc", "prometheus_client", "sqlalchemy", "uvicorn")
        if not find_spec(name)
    ]
    if missing:
        raise UsageError(f"the transfer service needs {', '.join(missing)}", hint="install tradewind[service]")
    words = [*words, *([f"--gateway={args.gateway}"] if args.gateway else [])]
    sys.stdout.flush()
    # While Python starts again, Ctrl-C would print a traceback. It waits until the server can handle it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    os.execv(sys.executable, [sys.executable, "-c", SERVER, *words])
