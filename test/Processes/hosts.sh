#!/usr/bin/env bash
# The model of scripts/demo, smaller steps: 4 ranks as threads of one process,
# then as 2 x 2 processes on two hosts with a link between them. Losses must be
# the same, bit for bit, and must have crossed the link.
#   hosts.sh BIN WORK_FOLDER
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PATH=$1:$PATH
work=$2
cd "$work"

cat >two <<'HOSTS'
host first processes=2
host second processes=2
link first second rate=2gbit
HOSTS
"$root/scripts/hosts" two -- true || exit $?

cat >config.json <<'JSON'
{"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 320,
 "n_layer": 4, "n_head": 8, "activation_function": "gelu_new",
 "layer_norm_epsilon": 1e-5, "initializer_range": 0.04, "resid_pdrop": 0.1,
 "embd_pdrop": 0.1, "attn_pdrop": 0.1}
JSON
losses() { sed 's/,"lr".*//' "$1"; }
for strategy in dp2.tp2 sdp4; do
  galvatron-compile config.json --seq-len=64 --cluster=4xcpu --batch=8 \
    --micro-batches=1 --pipeline-degree=1 --strategy=$strategy -o model.gvx \
    >/dev/null
  run=(galvatron-run model.gvx "--data=$root/LICENSE" --data-format=text
    --steps=3 --lr=1e-3)
  "${run[@]}" --log=threads.jsonl >/dev/null
  "$root/scripts/hosts" --traffic=traffic two -- "${run[@]}" \
    --log=hosts.jsonl >/dev/null
  if ! diff <(losses threads.jsonl) <(losses hosts.jsonl); then
    echo "$strategy: losses differ between threads and hosts" >&2
    exit 1
  fi
  [ "$(losses threads.jsonl | wc -l)" -eq 3 ]
  # Three steps reduce the gradients of 5 million parameters, or their halves.
  crossed=$(awk '$1 == "first" { print $3 }' traffic)
  if [ "$crossed" -lt 20000000 ]; then
    echo "$strategy: only $crossed bytes crossed the link" >&2
    exit 1
  fi
done

# A plan for two nodes, whose processes are dealt round the hosts as mpirun
# --map-by node does it: ranks are numbered anew, and nothing else changes.
galvatron-compile config.json --seq-len=64 --cluster=2x2xcpu --batch=8 \
  --micro-batches=1 --pipeline-degree=1 --strategy=dp2.tp2 -o model.gvx >/dev/null
"${run[@]}" --log=threads.jsonl --save=threads >/dev/null
cat >dealt <<'DEALT'
#!/usr/bin/env bash
numbers=(0 2 1 3)
export RANK=${numbers[RANK]}
exec "$@"
DEALT
chmod +x dealt
"$root/scripts/hosts" --launch=torchrun two -- ./dealt "${run[@]}" \
  --log=hosts.jsonl --save=hosts >said 2>&1
if ! grep -qF "note: ranks are not numbered as they were started, so that each node of the plan is on one host: 'first' has 0, 1, 'second' has 2, 3" said; then
  cat said
  exit 1
fi
diff <(losses threads.jsonl) <(losses hosts.jsonl)
cmp threads/model.safetensors hosts/model.safetensors
# Links are measured by the groups of the plan: two of them share 400 Mbit, so a
# member of either sends less than 25 MB a second, and most of that.
cat >slow <<'HOSTS'
host first processes=2
host second processes=2
link first second rate=400mbit
HOSTS
"$root/scripts/hosts" --launch=torchrun slow -- galvatron-run --check model.gvx >said
rate=$(sed -n 's,^link: dp2 \(.*\)MB/s between nodes\, 550MB/s in the plan$,\1,p' said)
if ! awk -v rate="$rate" 'BEGIN { exit !(rate > 12 && rate < 26) }' ||
   ! grep -q "^warning: dp2: the plan expects 550MB/s between nodes, found ${rate}MB/s" said; then
  cat said
  exit 1
fi
# By MPI too; its processes have the names of two hosts, in turns.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cat >named <<'NAMED'
#!/usr/bin/env bash
exec unshare --uts bash -c 'hostname "$1"; exec "${@:2}"' - \
  host$((OMPI_COMM_WORLD_RANK % 2)) "$@"
NAMED
chmod +x named
mpirun -n 4 --oversubscribe ./named "${run[@]}" --log=mpi.jsonl --save=mpi >said 2>&1
grep -qF "'host0' has 0, 1, 'host1' has 2, 3" said
diff <(losses threads.jsonl) <(losses mpi.jsonl)
cmp threads/model.safetensors mpi/model.safetensors
# One node is on both hosts whatever the numbers: it is told.
galvatron-compile config.json --seq-len=64 --cluster=4xcpu --batch=8 \
  --micro-batches=1 --pipeline-degree=1 --strategy=dp2.tp2 -o model.gvx >/dev/null
"$root/scripts/hosts" --launch=torchrun two -- "${run[@]}" >said 2>&1
grep -qF "warning: ranks 0 to 3 are one node of the plan and on hosts 'first' and 'second', and no other numbering" said
