"""A stand-in for Azure: Resource Manager as a server (`api/`), for the real clients and real credentials chain."""

from testbed.clouds.azure.server import GROUP, IDENTITY, SUBSCRIPTION, AzureApi, azure_api

__all__ = ["GROUP", "IDENTITY", "SUBSCRIPTION", "AzureApi", "azure_api"]
