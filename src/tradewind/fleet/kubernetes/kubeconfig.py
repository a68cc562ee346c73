"""The kubeconfig files of this machine. `KUBECONFIG` may name several; the first that has a context counts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightkube import KubeConfig

__all__ = ["contexts_of", "kubeconfig_of", "kubeconfig_paths"]


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


def kubeconfig_of(context: str, path: str | None) -> KubeConfig:
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
            return KubeConfig.from_service_account()
        except ConfigError:
            return _read(paths[0])
    # As kubectl does: files that do not exist are skipped, and of two entries with one name the first counts.
    configs = [_read(one) for one in paths if os.path.isfile(one)] or [_read(paths[0])]
    chosen = next((config for config in configs if context in config.contexts), configs[0])
    last_first = configs[::-1]
    return KubeConfig(
        clusters={name: one for config in last_first for name, one in config.clusters.items()},
        users={name: one for config in last_first for name, one in config.users.items()},
        contexts=chosen.contexts,
        fname=chosen.fname,
    )


def _read(path: str) -> KubeConfig:
    """Return the configuration in a file. Raises lightkube's ConfigError, yaml's YAMLError, OSError."""
    from lightkube import KubeConfig
    from lightkube.core.exceptions import ConfigError

    try:
        return KubeConfig.from_file(path)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is not a kubeconfig") from error
