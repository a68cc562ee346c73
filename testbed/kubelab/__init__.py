"""Real Kubernetes clusters on one Linux machine, one per region, from package registries alone.

`components/` builds all parts of Kubernetes, etcd and kubectl as one program from Go modules; Debian has containerd,
runc and the network plugins. Each node is a set of namespaces of its own. It needs root, and one lab runs on a machine
at a time, because its bridge and addresses are fixed.

`python -m testbed.kubelab up --regions r1,r2 --image gateway.tar` starts one by hand.
"""

from testbed.kubelab.image import gateway_image, write_image
from testbed.kubelab.install import lab_unavailable
from testbed.kubelab.lab import Lab, LabError, kubelab

__all__ = ["Lab", "LabError", "gateway_image", "kubelab", "lab_unavailable", "write_image"]
