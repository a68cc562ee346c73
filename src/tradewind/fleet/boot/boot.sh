# Turns a rented machine into a gateway. A machine runs this text as root when it boots, after the settings that
# `user_data.py` writes before it:
#   programs      one line for each processor: name of `uname -m`, SHA-256 of the program, URL of the program as it is or
#                 compressed by gzip
#   join          the document with which the gateway joins its fleet
#   lease_s       seconds that the machine runs unless its owner renews the lease
#   boot_s        seconds within which the gateway must run
#   late_s        seconds that a gateway may need to end after its lease has expired
#   look_s        interval of looks at the lease
#   end_command   command that ends the machine where a shutdown only stops it; may be missing
#   notice_command  command that succeeds once the cloud has announced that it takes the machine back; may be missing
#   notice_s      seconds from that announcement until the machine is gone; may be missing
# The machine ends itself, whatever happens to its owner: if its gateway does not start in time, when the gateway ends,
# and when the lease has expired although the gateway still runs, because it is frozen.
set -u
umask 077
folder=/run/tradewind
tries=20 # downloads of the program
read -r booted_s _ < /proc/uptime

say() { # to the machine's console, which the provider can show, and to the log
  printf 'tradewind: %s\n' "$*" >> "$folder/boot.log"
  { printf 'tradewind: %s\n' "$*" >> /dev/console; } 2> /dev/null
}

end_machine() {
  say "$1; the machine ends"
  while :; do
    if [ -n "${end_command-}" ]; then said=$(sh -c "$end_command" 2>&1) || say "it cannot delete itself: $said"; fi
    shutdown -h now || poweroff -f || halt -f -p
    sleep 30
  done
}

now_s() { read -r up _ < /proc/uptime && echo "${up%.*}"; }

# The lease file has the uptime at which the lease expires. The gateway moves it with each renewal.
watch_lease() {
  while :; do
    sleep "$look_s"
    read -r until_s < "$folder/lease" 2> /dev/null || continue
    if [ "$(now_s)" -gt $((until_s + late_s)) ]; then end_machine "the lease has expired"; fi
  done
}

# The cloud announces some seconds before it takes a machine back. The gateway tells its owner, who orders another one.
watch_notice() {
  while :; do
    sleep 2
    sh -c "$notice_command" > /dev/null 2>&1 || continue
    say "the cloud takes the machine back"
    read -r pid < "$folder/pid" && kill -USR1 "$pid"
    return
  done
}

download() { # URL FILE
  if command -v curl > /dev/null; then curl -fsSL --retry 2 --connect-timeout 10 -o "$2" "$1"
  elif command -v wget > /dev/null; then wget -q -T 30 -O "$2" "$1"
  else end_machine "neither curl nor wget is installed"
  fi
}

unpack() { # FILE
  if gzip -dc < "$1" > "$1.unpacked" 2> /dev/null; then mv "$1.unpacked" "$1"; else rm -f "$1.unpacked"; fi
}

get_program() {
  processor=$(uname -m)
  line=$(printf '%s\n' "$programs" | grep "^$processor ") || end_machine "there is no gateway program for $processor"
  rest=${line#* } sha256=${rest%% *} url=${rest#* }
  try=0
  while :; do
    if said=$(download "$url" "$folder/gateway" 2>&1); then
      unpack "$folder/gateway"
      printf '%s  %s\n' "$sha256" "$folder/gateway" | sha256sum -c > /dev/null 2>&1 && break
      end_machine "the program at $url is not the one with SHA-256 $sha256"
    fi
    try=$((try + 1))
    say "the program cannot be downloaded from $url: $said"
    [ "$try" -lt "$tries" ] || end_machine "the program cannot be downloaded"
    sleep "$((try < 5 ? try : 5))"
  done
  chmod 700 "$folder/gateway"
}

# cloud-init runs this text at the first boot only. After a reboot nothing would end the machine, so it ends then.
end_after_reboot() {
  scripts=/var/lib/cloud/scripts/per-boot boot=/proc/sys/kernel/random/boot_id
  [ -d "$scripts" ] || return 0
  { printf '#!/bin/sh\n[ "$(cat %s)" != %s ] || exit 0\n' "$boot" "$(cat "$boot")"
    printf '%s\n' "${end_command-}" 'shutdown -h now || poweroff -f'
  } > "$scripts/tradewind-end"
  chmod 700 "$scripts/tradewind-end"
}

mkdir -p "$folder"
end_after_reboot
echo $(($(now_s) + boot_s)) > "$folder/lease"
watch_lease &
[ -z "${notice_command-}" ] || watch_notice &
say "booted"
get_program
say "downloaded"
echo $(($(now_s) + lease_s)) > "$folder/lease"
printf '%s\n' "$join" | sh -c 'echo $$ > "$0/pid" && exec "$0/gateway" "$@"' "$folder" serve --join - --lease-s "$lease_s" --lease-file "$folder/lease" \
  --raise-tcp-buffers --booted-s "$booted_s" ${notice_s:+--notice-s "$notice_s"} > "$folder/ready" 2>> "$folder/boot.log"
end_machine "the gateway ended with $?"
