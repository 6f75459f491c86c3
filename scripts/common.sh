# Shared by scripts/demo and scripts/test; sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# configure PRESET BUILD_DIR [cmake arguments...]
# Configures once; a build folder that is there keeps its settings, apart from
# the arguments given. Files of a target are compiled together: a whole build
# takes half the time, a change to one file longer (see CONTRIBUTING.md).
configure() {
  local preset=$1 build=$2
  shift 2
  local arguments=("$@")
  if [ ! -f "$build/build.ninja" ]; then
    arguments+=(--preset "$preset" -B "$build"
      -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=12)
    # Code for one generation, which drivers translate for later ones: of use
    # where no GPU is, in half the time.
    if [ ! -e /dev/nvidiactl ]; then
      arguments+=(-DCMAKE_CUDA_ARCHITECTURES=80)
    fi
    # A change is checked without warnings; other compilers may know more of them.
    if [ -n "${GALVATRON_WERROR:-}" ]; then
      arguments+=("-DCMAKE_CXX_FLAGS=-Werror" "-DCMAKE_C_FLAGS=-Werror")
    fi
    if command -v mold >/dev/null; then
      local kind
      for kind in EXE SHARED MODULE; do
        arguments+=("-DCMAKE_${kind}_LINKER_FLAGS=-fuse-ld=mold")
      done
    fi
    (cd "$root" && quietly cmake "${arguments[@]}")
  elif [ "${#arguments[@]}" -gt 0 ]; then
    quietly cmake "${arguments[@]}" "$build"
  fi
}

# quietly COMMAND...: its output is shown only if it fails.
quietly() {
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 || status=$?
  if [ "$status" -ne 0 ]; then
    cat "$log" >&2
  fi
  rm -f "$log"
  return "$status"
}

# build DIR [targets...]: with all cores; one line on a terminal, little in logs.
build() {
  local dir=$1
  shift
  if [ -t 1 ]; then
    ninja -C "$dir" "$@"
  else
    quietly ninja -C "$dir" "$@"
  fi
}
