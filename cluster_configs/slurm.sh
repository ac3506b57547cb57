#!/usr/bin/env bash
# Runs a command on a Ray cluster of its own, inside a Slurm allocation.
#
#   sbatch --nodes=3 --cpus-per-task=16 --gpus-per-node=4 --time=24:00:00 cluster_configs/slurm.sh \
#     ditk-ray tune --cfg_class CartpoleDQNJobCfg --name first
#
# The head runs on the first node, a worker on each other one; when all have joined, the command
# is run on the first node, with RAY_ADDRESS set, which `ditk-ray tune` follows. The job's exit
# code is the command's. Whatever ends it (scancel, too), Ray is ended on all nodes.
#
# The folder of results has to be one that all nodes see: submit from such a folder, or give
# `--storage_path`. A job that Slurm requeues starts the command again: with
# `tune --name NAME --resume_existing` it resumes. Before the time limit the command gets
# SIGTERM (see --signal below), so a sweep ends in good order and can be resumed.
#
# Settings, all by environment variable:
#   DITK_RAY_VENV        the virtual environment to use      (default: what is on the PATH)
#   DITK_RAY_JOIN_TIME   seconds for all nodes to join       (default: 300)
#   DITK_RAY_INTERFACE   the network between nodes, as ib0   (default: that of the node's name)
#   DITK_RAY_NODE_TMP    a short path on each node's disk    (default: /tmp)
#SBATCH --job-name=ditk-ray
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@60
# shellcheck disable=SC2329 # functions that only traps call
set -euo pipefail

say() { printf '[slurm] %s\n' "$*" >&2; }
refuse() {
  say "$1"
  exit 2
}

# Waits for a process and returns its exit code, however often a signal interrupts the waiting.
await() {
  local code
  while true; do
    interrupted='' code=0
    wait "$1" || code=$?
    [ -n "$interrupted" ] || return "$code"
  done
}

# Prints the IPv4 address at which other nodes reach this one. Left alone, Ray takes the one of
# the default route, which many clusters' nodes do not have.
node_address() {
  local found
  if [ -n "${DITK_RAY_INTERFACE:-}" ]; then
    found=$(ip -4 -oneline address show dev "$DITK_RAY_INTERFACE" | awk '{print $4}')
  else
    found=$(getent ahostsv4 "$(hostname)" | awk '{print $1}' || true; hostname -I | tr ' ' '\n')
  fi
  # All of it is read: a pipe that is closed early would fail the script.
  awk -F/ '/^[0-9.\/]+$/ && !/^127\./ && !first {first = $1} END {print first ? first : "127.0.0.1"}' <<<"$found"
}

# Runs Ray on this node until it gets SIGTERM. The token comes by standard input; the arguments
# are those of `ray start` that head and workers do not share.
run_node() {
  local folder memory ray code=0 options=()
  umask 077
  # Not Ray's usual folder: that belongs to whoever used the node first, and two Ray nodes of
  # one machine delete each other's files there. Short, since sockets lie in it.
  folder=$(mktemp -d "${DITK_RAY_NODE_TMP:-/tmp}/ray_${SLURM_JOB_ID}_XXXX")
  cat >"$folder/token"
  # Ray sees all of a node's memory, not the job's share of it. A tenth is left for Ray itself.
  memory=${SLURM_MEM_PER_NODE:-$((${SLURM_MEM_PER_CPU:-0} * SLURM_CPUS_ON_NODE))} # MiB
  if [ "$memory" -gt 0 ]; then
    options+=("--memory=$((memory * 1024 * 1024 * 8 / 10))")
    options+=("--object-store-memory=$((memory * 1024 * 1024 / 10))")
  fi
  # Only the head's ports are fixed: others may be taken by a job on the same node. Without the
  # first setting Ray, told to end, would wait for half a minute for its work to go elsewhere.
  RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0 TMPDIR=$folder RAY_AUTH_TOKEN_PATH=$folder/token \
    ray start "$@" --block --disable-usage-stats --temp-dir="$folder" \
    --node-ip-address="$(node_address)" --num-cpus="$SLURM_CPUS_ON_NODE" \
    --num-gpus="${SLURM_GPUS_ON_NODE:-0}" "${options[@]}" \
    --min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port=0 \
    --dashboard-agent-grpc-port=0 --runtime-env-agent-port=0 --metrics-export-port=0 </dev/null &
  ray=$!
  trap 'interrupted=yes; kill -TERM "$ray" 2>/dev/null || true' TERM INT
  await "$ray" || code=$?
  for _ in $(seq 50); do # Ray's last processes may still write a line
    rm -rf "$folder" 2>/dev/null && break
    sleep 0.2
  done
  return "$code"
}

# Runs Ray on a node for as long as standard input stays open, of which the token is the first
# line: so the node ends in good order when the job does, and also when its script was killed.
run_worker() {
  local token node lifeline code=0
  exec 3<&0
  read -r token <&3
  run_node "$@" <<<"$token" 3<&- &
  node=$!
  cat <&3 >/dev/null &
  lifeline=$!
  trap 'interrupted=yes' TERM INT
  wait -n "$node" "$lifeline" || true
  kill -TERM "$node" "$lifeline" 2>/dev/null || true
  await "$node" || code=$?
  return "$code"
}

# Waits for a process of ours that was asked to end, and kills it if it does not.
ended() {
  for _ in $(seq 100); do
    kill -0 "$1" 2>/dev/null || return 0
    sleep 0.2
  done
  kill -KILL "$1" 2>/dev/null || true
}

finish() {
  trap '' TERM INT
  trap - EXIT
  exec 9>&- # the workers' lifeline; srun itself, told to end, would kill them
  # shellcheck disable=SC2086 # one word for each process, and none for those that are not there
  kill -TERM $command $waiter $head 2>/dev/null || true
  for process in $command $waiter $workers $head; do ended "$process"; done
  rm -rf "$work"
}

on_term() {
  interrupted=yes
  [ -n "$command" ] || exit 143
  say "told to end: so is the command"
  kill -TERM "$command" 2>/dev/null || true
}

fail_to_start() {
  say "$1; what its nodes said:"
  tail -n 30 "$work"/*.log >&2
  exit 1
}

[ -n "${SLURM_JOB_ID:-}" ] || refuse "this is no Slurm job: run it with sbatch, see its first lines"
[ $# -gt 0 ] || refuse "no command given: sbatch --nodes=2 slurm.sh ditk-ray tune --cfg_class NAME"
[ -z "${DITK_RAY_VENV:-}" ] || export PATH="$DITK_RAY_VENV/bin:$PATH"
command -v ray >/dev/null || refuse "no \`ray\` on the PATH: set DITK_RAY_VENV to the environment's folder"
command -v "$1" >/dev/null || refuse "no command \`$1\` on the PATH: is it a typo, or is DITK_RAY_VENV missing?"
python=$(dirname "$(command -v ray)")/python

# Jobs on the same node have ids that differ, and few jobs are between them.
port=$((20000 + SLURM_JOB_ID % 4000 * 3))
limit=${DITK_RAY_JOIN_TIME:-300}
address=$(node_address):$port
command='' waiter='' workers='' head='' interrupted=''
umask 077
work=$(mktemp -d)
trap finish EXIT
trap on_term TERM INT

# Anyone who has the token can run code as this user. It is in files that only the user can read, and
# reaches the other nodes by srun's standard input: no command line and no environment shows it.
unset RAY_AUTH_TOKEN
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$work/token RAY_ADDRESS=$address
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/token"
echo >>"$work/token"

say "starting Ray on ${SLURM_JOB_NUM_NODES} nodes, the head at $address"
run_node --head --port="$port" --dashboard-host=127.0.0.1 --dashboard-port=$((port + 1)) \
  --ray-client-server-port=$((port + 2)) <"$work/token" >"$work/head.log" 2>&1 &
head=$!
started=$SECONDS
until (exec 3<>"/dev/tcp/${address%:*}/$port") 2>/dev/null; do
  kill -0 "$head" 2>/dev/null || fail_to_start "the head did not start"
  [ $((SECONDS - started)) -lt "$limit" ] || fail_to_start "the head does not answer after $limit s"
  sleep 0.2
done

if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  # One step for all of them, with all that the job has of each; one that is lost leaves the
  # others running.
  mkfifo "$work/lifeline"
  srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) \
    --ntasks-per-node=1 --relative=1 --export=ALL --cpu-bind=none --label \
    --no-kill --kill-on-bad-exit=0 --wait=0 \
    bash -c "set -euo pipefail; $(declare -f await node_address run_node run_worker); run_worker \"\$@\"" \
    bash --address="$address" <"$work/lifeline" >"$work/workers.log" 2>&1 &
  workers=$!
  exec 9>"$work/lifeline" # the processes below must not hold it, too
  cat "$work/token" >&9
fi

"$python" - "$address" "$SLURM_JOB_NUM_NODES" "$limit" >"$work/joining.log" 2>&1 9>&- <<'PYTHON' &
import sys
import time

import ray

address, wanted, limit = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
deadline = time.monotonic() + limit
joined = 0
while joined < wanted:
    if time.monotonic() > deadline:
        sys.exit(f"{joined} of {wanted} nodes have joined after {limit:g} s")
    try:
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, logging_level="ERROR")
        joined = sum(node["Alive"] for node in ray.nodes())
    except (ConnectionError, RuntimeError):
        pass  # the head answers, but is not complete yet
    time.sleep(0.5)
PYTHON
waiter=$!
joined=0
# shellcheck disable=SC2086 # one word for each process, and none for those that are not there
wait -n $waiter $head $workers || joined=$?
if kill -0 "$waiter" 2>/dev/null; then fail_to_start "a node ended before all had joined"; fi
[ "$joined" = 0 ] || fail_to_start "the cluster did not come together"
waiter=''

say "all nodes have joined after $((SECONDS - started)) s; running: $*"
code=0
"$@" 9>&- &
command=$!
await "$command" || code=$?
command=''
say "the command ended with $code"
exit "$code"
