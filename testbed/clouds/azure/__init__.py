"""A stand-in for Azure: Resource Manager as a server (`api/`), for the real clients, and machines that boot."""

from testbed.clouds.azure.machines import AzureCloud, azure_cloud
from testbed.clouds.azure.server import GROUP, IDENTITY, SUBSCRIPTION, AzureApi, azure_api

__all__ = ["GROUP", "IDENTITY", "SUBSCRIPTION", "AzureApi", "AzureCloud", "azure_api", "azure_cloud"]
