"""Object-store servers on loopback: installed by package clients, started on free ports, ended with their parent.

Use ``with versitygw() as server:`` and pass ``server.environment`` to the program under test. Each server has its own
process group and dies with the process that started it, even if that is killed.
"""

from testbed.servers.azurite import azurite
from testbed.servers.ceph import ceph
from testbed.servers.gcs import gcs
from testbed.servers.install import InstallError
from testbed.servers.minio import minio
from testbed.servers.moto import moto
from testbed.servers.process import Server, ServerError
from testbed.servers.rclone import rclone
from testbed.servers.s3rver import s3rver
from testbed.servers.seaweedfs import seaweedfs
from testbed.servers.shared import shared
from testbed.servers.versitygw import versitygw

__all__ = [
    "InstallError",
    "Server",
    "ServerError",
    "azurite",
    "ceph",
    "gcs",
    "minio",
    "moto",
    "rclone",
    "s3rver",
    "seaweedfs",
    "shared",
    "versitygw",
]
