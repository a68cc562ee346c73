"""`python -m tradewind.service`: one server. `tradewind serve` and `tradewind console` start it."""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
import sys
from argparse import ArgumentParser, Namespace
from contextlib import closing, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from ipaddress import ip_address, ip_network
from pathlib import Path

from tradewind.errors import TradewindError, UsageError, name_options, record_errors_as
from tradewind.model.files import private_folder, state_folder
from tradewind.model.url import parse_url
from tradewind.service.endpoints import canonical_endpoint
from tradewind.service.invitation import ADDRESS_FILE, running_console, show
from tradewind.service.limits import (
    LEASE_S_DEFAULT,
    LEASE_S_MAX,
    LEASE_S_MIN,
    MACHINES_MAX,
    RUNNING_JOBS_DEFAULT,
    RUNNING_JOBS_MAX,
    STOP_S,
)
from tradewind.service.machines import HERE_ONLY, MachineRules, sites_of_file
from tradewind.service.settings import TENANT, OidcSettings, ServiceSettings
from tradewind.service.sites import parse_sites
from tradewind.service.traces import traces_endpoint

#: Time after which Python lets another thread run [s]. With its default of 5 ms, a request that needs a lock or the
#: database waits as long for each thread that computes.
SWITCH_S = 0.001
#: Folder of a user's own console, in the user's state folder.
CONSOLE_FOLDER = "console"


def main() -> int:
    """Serve until a signal, and return the exit code."""
    name_options()
    try:
        return _serve(_arguments())
    except KeyboardInterrupt:  # While it starts; later, the server ends by itself.
        return 130
    except TradewindError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"error: {error.filename or ''}: {error.strerror or error}".replace(": :", ":"), file=sys.stderr)
        return 1


def _arguments() -> Namespace:
    parser = ArgumentParser(prog="python -m tradewind.service", allow_abbrev=False)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--state")
    where.add_argument("--console")
    parser.add_argument("--no-browser", action="store_true")
    parser.add_argument("--database")
    parser.add_argument("--lease", type=int, default=LEASE_S_DEFAULT)
    parser.add_argument("--listen", default="127.0.0.1:8080")
    parser.add_argument("--allow-path", action="append", default=[])
    parser.add_argument("--allow-store", action="append", default=[])
    parser.add_argument("--allow-endpoint", action="append", default=[])
    parser.add_argument("--site", action="append", default=[])
    parser.add_argument("--guest-address", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=RUNNING_JOBS_DEFAULT)
    parser.add_argument("--behind-proxy", action="store_true")
    parser.add_argument("--migrate", action="store_true")
    parser.add_argument("--new-admin-token", action="store_true")
    parser.add_argument("--gateway")
    parser.add_argument("--oidc")
    parser.add_argument("--oidc-audience")
    parser.add_argument("--oidc-tenant-claim", default="tenant")
    parser.add_argument("--oidc-role-claim", default="roles")
    parser.add_argument("--oidc-role", action="append", default=[])
    parser.add_argument("--oidc-tenant", action="append", default=[])
    parser.add_argument("--key-file")
    parser.add_argument("--allow-webhook-network", action="append", default=[])
    parser.add_argument("--traces")
    parser.add_argument("--tune-links", choices=("on", "off"), default="on")
    parser.add_argument("--via", choices=("auto", "fleet", "here"), default="here")
    parser.add_argument("--sites-file")
    parser.add_argument("--max-cost", type=float)
    parser.add_argument("--max-vms", type=int)
    parser.add_argument("--share-keys", action="store_true")
    return parser.parse_args()


def _settings(args: Namespace) -> ServiceSettings:
    """Return the checked settings. Raises UsageError."""
    if not 1 <= args.jobs <= RUNNING_JOBS_MAX:
        raise UsageError(f"--jobs {args.jobs}: must be 1 to {RUNNING_JOBS_MAX}")
    if not LEASE_S_MIN <= args.lease <= LEASE_S_MAX:
        raise UsageError(f"--lease {args.lease}: must be {LEASE_S_MIN} to {LEASE_S_MAX} seconds")
    for url in args.allow_store:
        if parse_url(url, cwd="/").kind not in ("s3", "gs", "az", "r2"):
            raise UsageError(f"--allow-store {url}: not a bucket or prefix", hint="for example s3://bucket/prefix/")
    settings = ServiceSettings(
        state=Path(os.path.realpath(args.state or os.path.join(args.console, CONSOLE_FOLDER))),
        console=None if args.console is None else Path(os.path.realpath(args.console)),
        allow_paths=tuple(_allowed_folder(path) for path in args.allow_path),
        allow_stores=tuple(args.allow_store),
        allow_endpoints=tuple(canonical_endpoint(url) for url in args.allow_endpoint),
        jobs_max=args.jobs,
        database=None if args.database is None else _checked_database(args.database),
        lease_s=args.lease,
        gateway=args.gateway,
        oidc=_oidc(args),
        key_file=args.key_file,
        webhook_networks=tuple(_network(text) for text in args.allow_webhook_network),
        traces=None if args.traces is None else traces_endpoint(args.traces),
        tunes_links=args.tune_links == "on",
        machines=_machines(args),
        guest_addresses=tuple(dict.fromkeys(map(_guest_address, args.guest_address))),
    )
    return replace(settings, sites=parse_sites(args.site, settings))


def _allowed_folder(path: str) -> str:
    """Return a folder of `--allow-path`, with the links before `{tenant}` resolved. Raises UsageError.

    Tenants may be able to replace what is below, so a link there leads out of the folder.
    """
    before, tenant, after = os.path.abspath(path).partition(TENANT)
    folder = os.path.dirname(before) if tenant else before
    if not os.path.isdir(folder):
        raise UsageError(f"--allow-path {path}: {folder} is not a folder", hint="make it first, or correct the path")
    if not tenant:
        return os.path.realpath(folder)
    return os.path.join(os.path.realpath(folder), os.path.basename(before) + tenant + after)


def _guest_address(text: str) -> str:
    """Return an IP address of this machine that other hosts can dial. Raises UsageError."""
    try:
        address = ip_address(text)
    except ValueError:
        address = None
    if address is None or address.is_unspecified:
        raise UsageError(f"--guest-address {text}: not an IP address", hint="for example 192.0.2.7")
    _listening(str(address), 0, "--guest-address", "name an IP address of this machine").close()
    return str(address)


def _machines(args: Namespace) -> MachineRules:
    """Return the rules for machines of jobs. Raises UsageError, ConfigError."""
    if args.via == "here":
        for name in ("max_cost", "max_vms", "share_keys"):
            if getattr(args, name):
                raise UsageError(f"--{name.replace('_', '-')} needs --via auto or fleet")
        return HERE_ONLY
    if args.max_vms is not None and not 1 <= args.max_vms <= MACHINES_MAX:
        raise UsageError(f"--max-vms {args.max_vms}: must be 1 to {MACHINES_MAX}")
    sites = sites_of_file(args.sites_file)
    return MachineRules(args.via, args.max_cost, args.max_vms, args.share_keys, sites)


def _checked_database(url: str) -> str:
    if find_spec("psycopg") is None:
        raise UsageError("--database needs psycopg", hint="install tradewind[service,postgresql]")
    from tradewind.service.postgres import checked_url

    return checked_url(url)


def _oidc(args: Namespace) -> OidcSettings | None:
    """Return the issuer of OIDC tokens, if there is one. Raises UsageError."""
    from tradewind.service.auth import ROLES
    from tradewind.service.oidc import require_safe_url

    if args.oidc is None:
        if args.oidc_audience or args.oidc_role or args.oidc_tenant:
            raise UsageError("the options of OIDC need an issuer", hint="add --oidc ISSUER")
        return None
    require_safe_url(args.oidc)
    if not args.oidc_audience:
        raise UsageError(
            "--oidc needs --oidc-audience", hint="name the audience that the issuer writes for this service"
        )
    roles = tuple(_mapped("--oidc-role", text) for text in args.oidc_role)
    if not roles:
        raise UsageError("--oidc needs --oidc-role", hint="for example --oidc-role staff=operator")
    for value, role in roles:
        if role not in ROLES:
            raise UsageError(f"--oidc-role {value}={role}: no such role", hint=f"one of {', '.join(ROLES)}")
    tenants = tuple(_mapped("--oidc-tenant", text) for text in args.oidc_tenant)
    return OidcSettings(args.oidc, args.oidc_audience, args.oidc_tenant_claim, args.oidc_role_claim, roles, tenants)


def _mapped(option: str, text: str) -> tuple[str, str]:
    value, equals, name = text.rpartition("=")
    if not (value and equals and name):
        raise UsageError(f"{option} {text}: not VALUE=NAME")
    return value, name


def _network(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise UsageError(f"--allow-webhook-network {text}: {error}", hint="for example 10.0.0.0/8") from None


def _serve(args: Namespace) -> int:
    settings = _settings(args)
    if args.console is not None:
        private_folder(state_folder(settings.engine_state) / CONSOLE_FOLDER)
        running = running_console(settings.state)
        if running is not None:
            show(running, with_browser=not args.no_browser)
            return 0
    from tradewind.service.auth import renew_admin
    from tradewind.service.database import ServiceDatabase, check_address
    from tradewind.service.state_folder import alone, require_shared_folder

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    host, port = check_address(args.listen)
    private_folder(settings.state)
    # A core file would have secrets of connections. The gateways inherit the limit.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if args.console is not None:
        return _serve_console(settings, host, port, with_browser=not args.no_browser)
    # A new admin token is for running servers, too: the old one may be in wrong hands.
    own = nullcontext() if settings.is_replica or args.new_admin_token else alone(settings.state)
    with own, closing(ServiceDatabase(settings.state, settings.database)) as database:
        if args.migrate:
            changed = database.migrate()
            print(f"{database.name}: {'migrated to' if changed else 'is'} version {database.version()}")
            return 0
        database.require_current()
        if args.new_admin_token:
            renew_admin(database, settings)
            print(f"new admin token in {settings.admin_token}")
            return 0
        if settings.is_replica:
            require_shared_folder(database, settings.state)
        return _listen(settings, database, host, port, is_behind_proxy=args.behind_proxy)


def _serve_console(settings: ServiceSettings, host: str, port: int, *, with_browser: bool) -> int:
    """Serve a user's own console. Its database is updated without a question."""
    from tradewind.service.database import ServiceDatabase
    from tradewind.service.state_folder import alone

    with alone(settings.state):
        # Another start of the command sends the admin token to the address while the lock is held. That of a killed
        # console may be another user's by now.
        (settings.state / ADDRESS_FILE).unlink(missing_ok=True)
        with closing(ServiceDatabase(settings.state)) as database:
            database.migrate()
            return _listen(settings, database, host, port, is_behind_proxy=False, with_browser=with_browser)


def _listen(
    settings: ServiceSettings,
    database: object,
    host: str,
    port: int,
    *,
    is_behind_proxy: bool,
    with_browser: bool = False,
) -> int:
    import uvicorn

    from tradewind.service.app import Service, create_app
    from tradewind.service.auth import ensure_admin
    from tradewind.service.database import ServiceDatabase
    from tradewind.service.failures import text_for_record
    from tradewind.service.guarded_http import guarded_http
    from tradewind.service.own_console import OwnConsole
    from tradewind.service.shared_places import warn_of_shared_places

    assert isinstance(database, ServiceDatabase)
    listening = _listening(host, port)
    # Connections inherit it. Otherwise an answer of two writes waits 40 ms for the client's acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    name, bound = listening.getsockname()[:2]
    if not is_behind_proxy and not (name.startswith("127.") or name == "::1"):
        listening.close()
        raise UsageError(
            f"--listen {host}:{port}: other machines would send their tokens unencrypted",
            hint="listen on 127.0.0.1, or add --behind-proxy if a proxy with TLS is in front",
        )
    is_new = ensure_admin(database, settings) and settings.console is None
    address = f"http://{f'[{name}]' if ':' in name else name}:{bound}"
    sys.setswitchinterval(SWITCH_S)
    own = None if settings.console is None else OwnConsole(settings, database, address)
    if own is None and settings.guest_address is None and not ip_address(name).is_unspecified:
        settings = replace(settings, guest_addresses=(name,))
    service = Service(settings, database, own)
    if own is None:
        record_errors_as(text_for_record)
        with database.read() as connection:
            warn_of_shared_places(connection, settings)
    config = uvicorn.Config(
        create_app(service),
        http=guarded_http(is_behind_proxy=is_behind_proxy),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=STOP_S,
        proxy_headers=False,
    )
    if is_new:
        print(f"admin token in {settings.admin_token}")
    server = uvicorn.Server(config)

    def stop(*_: object) -> None:
        server.should_exit = True

    # Uvicorn takes these signals over a moment later, and raises them again at its end: the exit code must not change.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with nullcontext() if own is None else own, closing(service):
        service.start()
        # Only now: a server that cannot start, such as on a full disk, would reset the connections to the address. The
        # reader of the address may end the server at once.
        print(f"listening on {address}", flush=True)
        if own is not None:
            show(own.invite(), with_browser=with_browser)
        server.run(sockets=[listening])
    return 0


def _listening(
    host: str, port: int, option: str = "--listen", hint: str = "name another address with --listen HOST:PORT"
) -> socket.socket:
    """Return a socket that listens at the address. Raises UsageError if that is not possible."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=512)
    except OSError as error:
        reason = error.strerror if isinstance(error, socket.gaierror) or not error.errno else os.strerror(error.errno)
        raise UsageError(f"{option} {host}:{port}: {reason}", hint=hint) from None


if __name__ == "__main__":
    sys.exit(main())
