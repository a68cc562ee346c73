"""Starts Skyplane's own gateway daemon at one address: `skyplane_gateway.py ADDRESS PORT REGION CHUNKS plain|sealed`.

Run with the Python that Skyplane is installed for, in a folder of its own, which gets a certificate. As in Skyplane's
container, stunnel stands before the daemon's API, because gateways ask each other by HTTPS. Skyplane has a gateway per
machine and binds its API to every address of it; two on one machine need one each, and that is all that is changed.
"""

import subprocess
import sys
from functools import partial

from skyplane.gateway import gateway_daemon
from skyplane.gateway.cert import generate_self_signed_certificate

#: Where gateways ask each other.
HTTPS_PORT = 8080


def main() -> None:
    """Runs until it is killed. What daemon and stunnel say goes to standard output."""
    address, port, region, chunks, security = sys.argv[1:]
    generate_self_signed_certificate("api.cert", "api.key")
    with open("stunnel.conf", "w") as file:
        file.write("foreground = yes\npid =\ncert = api.cert\nkey = api.key\n")
        file.write(f"[api]\naccept = {address}:{HTTPS_PORT}\nconnect = {address}:{port}\n")
    subprocess.Popen(["stunnel", "stunnel.conf"])
    gateway_daemon.GatewayDaemonAPI = partial(gateway_daemon.GatewayDaemonAPI, host=address, port=int(port))
    daemon = gateway_daemon.GatewayDaemon(region, chunks, use_tls=False, use_e2ee=security == "sealed")
    daemon.run()


if __name__ == "__main__":
    main()
