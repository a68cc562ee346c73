# One node of a lab, in its own network, mount, PID, UTS and IPC namespace. `lab.py` sets the variables.
set -e
mount --make-rprivate /; mount --make-rshared /
hostname "$node"
mount -t overlay overlay -o "lowerdir=$rootfs/usr:/usr" /usr
mount -t tmpfs tmpfs /run; mkdir -p /run/netns /run/lock
mkdir -p /var/lib/containerd /var/lib/kubelet /var/lib/cni /etc/cni /var/log/pods /var/log/containers
for each in containerd kubelet cni; do mkdir -p "$folder/lib/$each"; mount --bind "$folder/lib/$each" "/var/lib/$each"; done
mkdir -p "$folder/pods"; mount --bind "$folder/pods" /var/log/pods
mount -t tmpfs tmpfs /etc/cni; mkdir -p /etc/cni/net.d; mount -t tmpfs tmpfs /var/log/containers
cp "$folder/network.conflist" /etc/cni/net.d/
ip link set lo up
for _ in $(seq 200); do ip link show eth0 >/dev/null 2>&1 && break; sleep 0.05; done
ip addr add "$address/16" dev eth0; ip link set eth0 up; ip route add default via "$gateway"
sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.bridge.bridge-nf-call-iptables=1 2>/dev/null || true
eval "$routes"
containerd -c "$folder/containerd.toml" >> "$folder/containerd.log" 2>&1 &
# A kubelet without the socket of its containers exits.
for _ in $(seq 600); do ctr -a "$folder/containerd.sock" version >/dev/null 2>&1 && break; sleep 0.05; done
"$program" kubelet --config="$folder/kubelet.json" --kubeconfig="$folder/kubelet.kubeconfig" --hostname-override="$node" \
   --node-ip="$address" --node-labels="topology.kubernetes.io/region=$region,pool=gateways" --root-dir=/var/lib/kubelet \
   --v=1 >> "$folder/kubelet.log" 2>&1 &
"$program" kube-proxy --config="$folder/proxy.json" --v=1 >> "$folder/proxy.log" 2>&1 &
wait
