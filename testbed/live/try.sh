#!/bin/sh
# Tries fleets with real accounts, for less than a dollar: try.sh SRC SRC_REGION DST DST_REGION
# See README.md beside this file. Whatever happens, the last step sweeps all machines.
set -eu
[ $# -eq 4 ] || { echo "usage: $0 SRC_URL SRC_REGION DST_URL DST_REGION" >&2; exit 2; }
src=${1%/}/ src_region=$2 dst=${3%/}/ dst_region=$4
most_usd=0.60
objects=64

work=$(mktemp -d)
log=$work/log
TRADEWIND_STATE_DIR=$work/state
export TRADEWIND_STATE_DIR

say() { printf '\n== %s\n' "$*" | tee -a "$log"; }
run() { printf '$ %s\n' "$*" | tee -a "$log"; "$@" 2>&1 | tee -a "$log"; }
transfer() { # DESTINATION
  set -- tradewind cp -r "$src" "$1" --via fleet --src-region "$src_region" --dst-region "$dst_region" \
    --max-cost "${most_usd}USD" --max-vms 1 -v
  printf '$ %s\n' "$*" | tee -a "$log"
  "$@" >> "$log" 2>&1
}

# From an empty state folder, so that everything is found by its tags alone.
sweep() { run env TRADEWIND_STATE_DIR="$work/empty" tradewind fleet sweep "$@"; }

finish() {
  code=$?
  say "sweep"
  sweep --all || echo "error: the sweep failed; look at the providers' consoles" >&2
  run env TRADEWIND_STATE_DIR="$work/empty" tradewind fleet list --everywhere || true
  echo "the log is $log"
  exit "$code"
}

say "what is missing"
run tradewind doctor || true
printf 'This writes below %s and %s and rents machines for at most %s USD a transfer. Type "yes" to go on: ' "$src" "$dst" "$most_usd"
read -r answer
[ "$answer" = yes ] || { echo "nothing was rented"; exit 1; }
trap finish EXIT

say "$objects objects of 16 MiB"
mkdir "$work/data"
number=0
while [ "$number" -lt "$objects" ]; do
  head -c 16777216 /dev/urandom > "$work/data/object-$number"
  number=$((number + 1))
done
run tradewind cp -r "$work/data" "$src"

say "a transfer through rented machines"
transfer "${dst}whole/"
tail -n 12 "$log"
job=$(tradewind jobs list --json | sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' | tail -n 1)
run tradewind jobs show "$job" --cost
run tradewind check "$src" "${dst}whole/"

say "a command that is killed"
transfer "${dst}killed/" &
client=$!
waited=0
until tradewind fleet list --everywhere | grep -q 'in use'; do
  [ "$waited" -lt 300 ] || { echo "error: no machine was seen" >&2; exit 1; }
  sleep 5
  waited=$((waited + 5))
done
run tradewind fleet list --everywhere
pkill -KILL -P "$client" || true
kill -9 "$client" 2> /dev/null || true
run env TRADEWIND_STATE_DIR="$work/empty" tradewind fleet list --everywhere
sweep --all

say "remove the copies"
run tradewind rm -r "$dst" -y
run tradewind rm -r "$src" -y
