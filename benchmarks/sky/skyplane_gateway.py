"""Start Skyplane's gateway daemon at one address: `skyplane_gateway.py ADDRESS PORT REGION CHUNKS plain|sealed`.

Run it with the Python interpreter of Skyplane's environment, in its own folder, into which a certificate is written.
As in Skyplane's container, stunnel accepts HTTPS for the daemon's API, which gateways use among each other. The only
change to Skyplane: its API binds to one address instead of all, so that two gateways can run on one machine.
"""

import subprocess
import sys
from functools import partial

from skyplane.gateway import gateway_daemon
from skyplane.gateway.cert import generate_self_signed_certificate

#: Port of the API among gateways.
HTTPS_PORT = 8080


def main() -> None:
    """Run until killed. The output of daemon and stunnel goes to standard output."""
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
