# What Tradewind does on a host that it reaches over SSH. This text is sent to `sh` there, followed by one call.
# $base: our folder on the host.
#   programs/SHA256   gateway programs, copied once for each version
#   machines/ID       one folder for each machine:
#     mark.json         tags, lease and place, one line
#     place             its place among the gateways of this host
#     join              what the gateway needs to join its fleet; removed when the gateway has opened it
#     ready, log        its standard output and error
#     lease             uptime at which its lease expires, which the gateway moves with each renewal
#     pid, supervisor   process ids
#     exit              its exit code, once it has ended
#     files/            files of `Host.put`
# The gateway ends by itself when its lease expires, whether or not anybody can still reach the host. One that cannot,
# because it is frozen, is killed by its supervisor.
set -u
umask 077
LOOKS=5 # tenths of a second for which a process may be without a folder while it becomes another program
TRIES=100 # tenths of a second to wait for a gateway's addresses
KEPT_S=60 # for so long the log of a machine that has ended can be read
LATE_S=60 # a gateway may need this time to end after its lease has expired; then it is killed
LOOK_S=5 # interval of looks at the lease

fail() { printf 'failed\t%s\n' "$*"; exit 0; }

# Links in the path are followed once, so that folders can be compared with those in which processes work.
if [ -d "$base" ]; then base=$(cd "$base" && pwd -P); fi

# Nobody else may write to our folder: it holds the program that gets the fleet's secrets.
own_base() {
  mkdir -p "$base/machines" "$base/programs" || fail "cannot make $base"
  [ -O "$base" ] && [ -O "$base/programs" ] && [ -O "$base/machines" ] || fail "cannot use $base: it belongs to another user"
  chmod 700 "$base" || fail "cannot change the mode of $base"
  base=$(cd "$base" && pwd -P)
}

# Whether a process of this number works in the folder. Without /proc: whether it exists.
# While a process with threads becomes another program, /proc shows it for a moment as one that has ended.
lives() { # PID FOLDER
  [ -n "$1" ] && kill -0 "$1" 2>/dev/null || return 1
  [ -d /proc/self ] || return 0
  looks=$LOOKS
  until works_in=$(readlink "/proc/$1/cwd" 2>/dev/null); do
    [ "$looks" -gt 0 ] && kill -0 "$1" 2>/dev/null || return 1
    sleep 0.1
    looks=$((looks - 1))
  done
  [ "$works_in" = "$2" ]
}

state() { # FOLDER
  if [ -f "$1/exit" ]; then printf 'ended %s' "$(cat "$1/exit")"
  # Empty: it is being written.
  elif [ ! -s "$1/pid" ]; then printf 'starting'
  elif lives "$(cat "$1/pid")" "$1"; then printf 'running'
  else printf 'ended'
  fi
}

show() { # FOLDER
  printf 'machine\t%s\t%s\t%s\t%s\n' "${1##*/}" "$(state "$1")" "$(cat "$1/mark.json")" "$(head -n 1 "$1/ready" 2>/dev/null)"
}

list_machines() {
  for folder in "$base"/machines/*; do
    if [ -f "$folder/mark.json" ]; then show "$folder"; fi
  done
  for program in "$base"/programs/*; do
    if [ -f "$program" ]; then printf 'program\t%s\n' "${program##*/}"; fi
  done
  echo done
}

# Runs in the background until the gateway has ended, then removes the machine's folder.
supervise='
  cd "$1" || exit 1
  program=$2; shift 2
  echo $$ > supervisor
  exec 3< join
  rm -f join
  "$program" serve "$@" <&3 > ready 2> log &
  gateway=$!
  exec 3<&-
  echo $gateway > pid
  while sleep "$LOOK_S" && kill -0 $gateway 2> /dev/null; do
    read -r until_s < lease 2> /dev/null && read -r up_s _ < /proc/uptime || continue
    if [ "${up_s%.*}" -gt $((until_s + LATE_S)) ]; then kill -KILL $gateway; fi
  done &
  timer=$!
  wait $gateway
  echo $? > exit.new && mv exit.new exit
  kill $timer
  sleep "$KEPT_S"
  rm -rf "$PWD"
'

# Whether another machine lives at this place. A launch says which place it takes before it asks, so of two launches that
# chose the same place at the same time, at least one learns of the other.
is_taken() { # PLACE FOLDER
  for other in "$base"/machines/*; do
    [ "$other" != "$2" ] && [ "$(cat "$other/place" 2>/dev/null)" = "$1" ] || continue
    case $(state "$other") in
      running) return 0 ;;
      # Without a process for a minute, it never began.
      starting) [ -n "$(find "$other/place" -mmin +1 2>/dev/null)" ] || return 0 ;;
    esac
  done
  return 1
}

launch() { # ID PROGRAM MARK PLACE JOIN ARGUMENT…
  own_base
  folder=$base/machines/$1 program=$base/programs/$2 mark=$3 place=$4 join=$5
  shift 5
  [ -x "$program" ] || { printf 'program missing\t%s\n' "$(uname -sm)"; exit 0; }
  if ! mkdir "$folder" 2>/dev/null; then
    [ -f "$folder/mark.json" ] || fail "cannot make $folder"
    show "$folder"
    exit 0
  fi
  printf '%s\n' "$place" > "$folder/place" || { rm -rf "$folder"; fail "cannot write to $folder"; }
  if is_taken "$place" "$folder"; then
    rm -rf "$folder"
    printf 'place taken\n'
    exit 0
  fi
  printf '%s\n' "$join" > "$folder/join" && printf '%s\n' "$mark" > "$folder/mark.new" &&
    mv "$folder/mark.new" "$folder/mark.json" || { rm -rf "$folder"; fail "cannot write to $folder"; }
  detach=setsid
  command -v setsid > /dev/null || detach=nohup
  if [ -r /proc/uptime ]; then set -- "$@" --lease-file lease; fi
  KEPT_S=$KEPT_S LATE_S=$LATE_S LOOK_S=$LOOK_S $detach sh -c "$supervise" tradewind "$folder" "$program" "$@" < /dev/null > /dev/null 2>&1 &
  left=$TRIES
  while [ ! -s "$folder/ready" ] && [ ! -f "$folder/exit" ] && [ "$left" -gt 0 ]; do
    sleep 0.1
    left=$((left - 1))
  done
  if [ -f "$folder/exit" ]; then
    printf 'failed\tthe gateway did not start: %s\n' "$(tail -n 1 "$folder/log")"
    remove "$folder"
  else
    show "$folder"
  fi
}

remove() { # FOLDER
  if [ -f "$1/supervisor" ] && lives "$(cat "$1/supervisor")" "$1"; then
    # It leads a process group, except where it was started without setsid.
    kill -KILL "-$(cat "$1/supervisor")" 2>/dev/null || kill -KILL "$(cat "$1/supervisor")"
  fi
  rm -rf "$1"
}

# Asks all to end, kills those that have not after a grace period, and removes their folders.
terminate() { # TENTHS_OF_GRACE ID…
  left=$1
  shift
  for id; do
    folder=$base/machines/$id
    if [ "$left" -gt 0 ] && [ -f "$folder/pid" ] && lives "$(cat "$folder/pid")" "$folder"; then kill -TERM "$(cat "$folder/pid")"; fi
  done
  for id; do
    folder=$base/machines/$id
    [ -d "$folder" ] || { printf 'ended\t%s\n' "$id"; continue; }
    pid=$(cat "$folder/pid" 2>/dev/null)
    while lives "$pid" "$folder" && [ "$left" -gt 0 ]; do sleep 0.1; left=$((left - 1)); done
    if lives "$pid" "$folder"; then kill -KILL "$pid"; fi
    tries=$TRIES
    while lives "$pid" "$folder" && [ "$tries" -gt 0 ]; do sleep 0.1; tries=$((tries - 1)); done
    if lives "$pid" "$folder"; then printf 'lives\t%s\n' "$id"; continue; fi
    remove "$folder"
    printf 'ended\t%s\n' "$id"
  done
  echo done
}

tail_log() { # ID BYTES
  tail -c "$2" "$base/machines/$1/log" 2>/dev/null
}

remove_program() { # SHA256
  rm -f "$base/programs/$1"
  echo done
}

# The path of a socket may have about a hundred bytes only, which that of a folder may exceed.
control_socket() { # ID
  short=/proc/$(cat "$base/machines/$1/pid")/cwd/control
  if [ -S "$short" ]; then printf '%s\n' "$short"; else printf '%s\n' "$base/machines/$1/control"; fi
}

where() { # ID
  printf '%s\n' "$base/machines/$1"
}
