"""Temporary credentials with a session policy: a token service, and a store that enforces its policies."""

from testbed.sessions.policed import PolicedStore
from testbed.sessions.service import TokenService
from testbed.sessions.session import Session, Sessions

__all__ = ["PolicedStore", "Session", "Sessions", "TokenService"]
