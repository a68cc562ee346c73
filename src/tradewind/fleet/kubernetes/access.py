"""How the API server of a context is reached, as kubectl does: its proxy, the name in its certificate, and the login.

lightkube ignores settings that it does not know. Those that matter are applied here, or refused by name: a call that
ignored them would reach another server, or act as another user.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tradewind.fleet.kubernetes.kubeconfig import kubeconfig_of
from tradewind.model.records import dataclass

if TYPE_CHECKING:
    import httpx2
    from lightkube.config.kubeconfig import SingleConfig
    from lightkube.config.models import UserExec

__all__ = ["ClusterAccess", "UnsupportedSetting", "access_of"]

EXEC_API = "client.authentication.k8s.io"
EXEC_VERSIONS = tuple(f"{EXEC_API}/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
#: The one of them that lightkube accepts. The program learns the version of the file.
KNOWN_EXEC_VERSION = EXEC_VERSIONS[1]
#: Settings of a user that let it act as another one.
IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")
SOCKS_PACKAGE = "socksio"


class UnsupportedSetting(Exception):
    """The kubeconfig has a setting with which Tradewind cannot reach the cluster."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """The configuration of a context; a proxy if its cluster names one; and the name in the server's certificate."""

    config: SingleConfig
    proxy: str | None = None
    server_name: str | None = None

    def transport(self) -> httpx2.BaseTransport | None:
        """Return a transport that checks the certificate for `server_name`; None if that is the server's own name."""
        if self.server_name is None:
            return None
        import httpx2
        from lightkube.config.client_adapter import verify_cluster

        name, config = self.server_name, self.config
        assert config.user is not None

        class NamedTransport(httpx2.HTTPTransport):
            def handle_request(self, request: httpx2.Request) -> httpx2.Response:
                request.extensions = {**request.extensions, "sni_hostname": name}
                return super().handle_request(request)

        verified = verify_cluster(config.cluster, config.user, config.abs_file)
        return NamedTransport(verify=verified, proxy=self.proxy or _environment_proxy(config.cluster.server))


def access_of(context: str, path: str | None) -> ClusterAccess:
    """Return how to reach the API server of a context. `path` is that of the kubeconfig file; None: the usual ones.

    Raises UnsupportedSetting, lightkube's ConfigError.
    """
    from lightkube.config.models import User
    from lightkube.core.exceptions import ConfigError

    found = kubeconfig_of(context, path)
    try:
        config = found.config.get(context_name=context)
    except KeyError as error:
        raise ConfigError(f"context {context} refers to {error}, which the kubeconfig does not have") from error
    assert config is not None
    config = config._replace(user=config.user or User())
    cluster, user = config.context.cluster, config.context.user or ""
    said = found.clusters.get(cluster, {})
    _refuse_login(user, found.users.get(user, {}))
    if config.user is not None and config.user.exec is not None:
        config.user.exec = _known_program(user, config.user.exec)
    if said.get("insecure-skip-tls-verify") and (
        config.cluster.certificate_auth or config.cluster.certificate_auth_data
    ):
        raise UnsupportedSetting(f"cluster {cluster} has both insecure-skip-tls-verify and a certificate authority")
    return ClusterAccess(config, _proxy(cluster, said.get("proxy-url")), said.get("tls-server-name") or None)


def _proxy(cluster: str, url: Any) -> str | None:
    """Return the proxy of a cluster. Its URL may have a password, so errors show its scheme alone."""
    if not url:
        return None
    where = f"proxy-url of cluster {cluster}"
    if not _is_address(str(url)):
        raise UnsupportedSetting(f"{where} is no URL such as http://proxy.example:3128")
    parts = urlsplit(str(url))
    if parts.scheme == "socks5" and find_spec(SOCKS_PACKAGE) is None:
        raise UnsupportedSetting(f"{where} begins with socks5://, which needs the Python package {SOCKS_PACKAGE}")
    if parts.scheme not in ("http", "https", "socks5"):
        raise UnsupportedSetting(f"{where} begins with {parts.scheme}://, not http://, https:// or socks5://")
    return str(url)


def _is_address(url: str) -> bool:
    """Return whether a URL has a host, and a port if any."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _refuse_login(user: str, said: Mapping[str, Any]) -> None:
    for name in IMPERSONATION:
        if said.get(name):
            raise UnsupportedSetting(f"user {user} acts as another one ({name}), which is not supported")
    run = said.get("exec") or {}
    program = f"login program {run.get('command')} of user {user}"
    if run and run.get("apiVersion") not in EXEC_VERSIONS:
        raise UnsupportedSetting(f"{program} speaks {run.get('apiVersion')}, not one of {', '.join(EXEC_VERSIONS)}")
    if run.get("interactiveMode") == "Always":
        raise UnsupportedSetting(f"{program} needs a terminal (interactiveMode: Always)")
    if run.get("provideClusterInfo"):
        raise UnsupportedSetting(f"{program} wants provideClusterInfo, which is not supported")


def _known_program(user: str, run: UserExec) -> UserExec:
    """Return a login program with what it must be told: its version, and that nobody can answer questions."""
    from lightkube.config.models import NameValue, UserExec

    own = {one.name: one.value for one in run.env or ()}
    if shutil.which(run.command, path=own.get("PATH", os.environ.get("PATH"))) is None:
        hint = f": {' '.join(run.installHint.split())}" if run.installHint else ""
        raise UnsupportedSetting(f"login program {run.command} of user {user} is not installed{hint}")
    info = {"kind": "ExecCredential", "apiVersion": run.apiVersion, "spec": {"interactive": False}}
    env = [*(run.env or ()), NameValue("KUBERNETES_EXEC_INFO", json.dumps(info))]
    return UserExec(KNOWN_EXEC_VERSION, run.command, env, run.args, run.installHint)


def _environment_proxy(server: str) -> str | None:
    """Return the proxy that the environment names for a server."""
    from urllib.request import getproxies, proxy_bypass

    parts, proxies = urlsplit(server), getproxies()
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    return proxies.get(parts.scheme) or proxies.get("all")
