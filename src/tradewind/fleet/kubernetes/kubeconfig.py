"""The kubeconfig files of this machine. `KUBECONFIG` may name several; the first that has a context counts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tradewind.model.records import dataclass, field

if TYPE_CHECKING:
    from lightkube import KubeConfig

__all__ = ["Kubeconfig", "contexts_of", "kubeconfig_of", "kubeconfig_paths"]


def kubeconfig_paths() -> list[str]:
    """Return the paths that `KUBECONFIG` names, else that of `~/.kube/config`; not all of them need exist."""
    named = [os.path.expanduser(path) for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    return named or [os.path.expanduser("~/.kube/config")]


def contexts_of(path: str) -> list[str] | None:
    """Return the contexts of a kubeconfig file; None if it cannot be read, or no reader of YAML is installed."""
    try:
        import yaml
    except ImportError:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            found: Any = yaml.safe_load(file)
        return [str(one["name"]) for one in found["contexts"]]
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return None


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """What kubeconfig files say: as lightkube reads it, and the clusters and users as they are written, by name."""

    config: KubeConfig
    clusters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    users: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def kubeconfig_of(context: str, path: str | None) -> Kubeconfig:
    """Return the configuration that has a context: of the file at `path`, else as `KUBECONFIG` says.

    Raises lightkube's ConfigError if no file can be used.
    """
    from lightkube import KubeConfig
    from lightkube.core.exceptions import ConfigError

    if path is not None:
        return _read(os.path.expanduser(path))
    paths = kubeconfig_paths()
    if len(paths) == 1:
        try:
            return Kubeconfig(KubeConfig.from_service_account())
        except ConfigError:
            return _read(paths[0])
    # As kubectl does: files that do not exist are skipped, and of two entries with one name the first counts.
    files = [_read(one) for one in paths if os.path.isfile(one)] or [_read(paths[0])]
    chosen = next((file for file in files if context in file.config.contexts), files[0]).config
    last_first = files[::-1]
    merged = KubeConfig(
        clusters={name: one for file in last_first for name, one in file.config.clusters.items()},
        users={name: one for file in last_first for name, one in file.config.users.items()},
        contexts=chosen.contexts,
        fname=chosen.fname,
    )
    return Kubeconfig(
        merged,
        {name: one for file in last_first for name, one in file.clusters.items()},
        {name: one for file in last_first for name, one in file.users.items()},
    )


def _read(path: str) -> Kubeconfig:
    """Return the configuration in a file. Raises lightkube's ConfigError, yaml's YAMLError, OSError."""
    import yaml
    from lightkube import KubeConfig
    from lightkube.core.exceptions import ConfigError

    if not os.path.isfile(path):
        raise ConfigError(f"Configuration file {path} not found")
    try:
        with open(path, encoding="utf-8") as file:
            found: Any = yaml.safe_load(file)
        config = KubeConfig.from_dict(found, fname=path)
        clusters = {one["name"]: one["cluster"] for one in found["clusters"]}
        users = {one["name"]: one["user"] or {} for one in found.get("users") or ()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is not a kubeconfig") from error
    _make_absolute(config, os.path.dirname(os.path.abspath(path)))
    return Kubeconfig(config, clusters, users)


def _make_absolute(config: KubeConfig, folder: str) -> None:
    """Let relative paths begin at the folder of their file, as kubectl does: those of programs only with a slash."""
    for cluster in config.clusters.values():
        if cluster.certificate_auth_data:
            cluster.certificate_auth = None  # lightkube would prefer the path, and kubectl prefers the data.
        elif cluster.certificate_auth:
            cluster.certificate_auth = os.path.join(folder, cluster.certificate_auth)
    for user in config.users.values():
        for name in ("token_file", "client_cert", "client_key"):
            if path := getattr(user, name):
                setattr(user, name, os.path.join(folder, path))
        if user.exec is not None and os.sep in user.exec.command:
            user.exec.command = os.path.join(folder, user.exec.command)
