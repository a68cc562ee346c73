"""Stand-ins for clouds whose machines really boot: network namespaces of this host that run their user data as root.

- `lan`: a private network of machines that this host reaches; a sky serves as one, too
- `booter`: boots machines from their user data, and notices when they end
- `programs`: an HTTP server for the gateway program
- `azure`: a stand-in for Azure's API, with Microsoft's own fakes
"""
