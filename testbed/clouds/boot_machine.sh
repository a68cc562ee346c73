# Process 1 of a booted machine, in namespaces of its own: boot_machine.sh USER_DATA CONSOLE
# It waits for a line on standard input, which says that the network is ready, then runs the user data as root.
# The machine has its own /run, /tmp and /var/lib (with cloud-init's folders), a console that this host can read, and commands that end it.
set -u
mount --make-rprivate / || exit 1
mount --bind "$2" /dev/console || exit 1
mount -t tmpfs tmpfs /run || exit 1
cp "$1" /run/user-data || exit 1
mount -t tmpfs tmpfs /tmp || exit 1
mount -t tmpfs tmpfs /var/lib || exit 1
mkdir -p /var/lib/cloud/scripts/per-boot
mkdir /run/bin
for command in shutdown poweroff halt reboot; do
  printf '#!/bin/sh\nkill -TERM 1\n' > "/run/bin/$command"
  chmod 755 "/run/bin/$command"
done
export PATH="/run/bin:$PATH"
trap 'exit 0' TERM
read -r ready || exit 1
cd / && sh /run/user-data < /dev/null > /dev/console 2>&1 &
# A machine runs on after its user data has ended.
while :; do
  sleep 3600 &
  wait $!
done
