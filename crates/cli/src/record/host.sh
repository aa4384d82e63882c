# Describes this host beside the job: what is asked once, and nvidia-smi once a second until the job has ended.
# Usage: sh host.sh FOLDER PID. `counterpoint record` starts it, and on other hosts the first Python process there.
# A program that is missing or says nothing is left out.
exec </dev/null >/dev/null 2>&1
folder=$1 job=$2
read -r host </proc/sys/kernel/hostname
host=${host%%.*}

# One at a time per host: whoever creates the file, unless the job named in it has ended.
set -C
claim=$folder/.hook/claim.$host
if ! echo "$job" >"$claim"; then
    kill -0 "$(cat "$claim")" && exit
fi
set +C
echo "$job" >"$claim"

if command -v nvidia-smi; then
    asked=timestamp,index,name,utilization.gpu,memory.used,memory.total,temperature.gpu,power.draw
    asked=$asked,clocks.sm,clocks.max.sm,clocks_throttle_reasons.active
    nvidia-smi --query-gpu=$asked --format=csv -l 1 >"$folder/use.$host.$job.csv" &
    watch=$!
    (while kill -0 "$job" && kill -0 $watch; do sleep 1; done; kill $watch) &
fi

once() { # NAME COMMAND...: as it would stand in a terminal
    file=$folder/$1.$host.$job.txt
    shift
    # A driver that hangs must not hold this script for ever.
    said=$(timeout 20 "$@")
    [ -z "$said" ] || printf '$ %s\n%s\n' "$*" "$said" >"$file"
}
once limits cat /proc/self/limits
once kernel cat /proc/cmdline
once mounts df -k /dev/shm /tmp
once processors lscpu
once topology nvidia-smi topo -m
once devices nvidia-smi -q
once infiniband ibv_devinfo -v
