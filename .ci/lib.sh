# Shared by .ci/run and .ci/slow: where things lie, steps with their times, steps side by side.

# Without line tables crates compile in five sixths of the time; panics name their lines all the same.
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 CARGO_PROFILE_RELEASE_DEBUG=false
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
export SUITES_WORK=${SUITES_WORK:-$CARGO_TARGET_DIR/suites}
release=$CARGO_TARGET_DIR/release/entresol
checked=$CARGO_TARGET_DIR/checked/entresol
logs=$CARGO_TARGET_DIR/ci

# Begins a run: forgets the times and outputs of the last one.
begin_run() {
    rm -rf "$logs"
    mkdir -p "$logs"
    : >"$logs/times"
    trap end_lanes EXIT
    echo "$(rustc --version), $(nproc) processors, $(uname -sr)"
}

# What the checked build is made of: assertions by its profile, mutation sites by these features.
mutants=entresol-cache/mutants,entresol-index/mutants,entresol-store/mutants
mutants+=,entresol-torture/mutants,entresol-simulated/mutants
checked_build=(--workspace --exclude xtask --profile checked --features "$mutants")
# Unit tests of the crates with mutation sites. The others are left out, but for `cli`: without it
# the features of what they depend on change, and all of that would be built twice.
checked_tests=("${checked_build[@]}" --lib)
for crate in bench measure protocol reproduce server service sharing; do
    checked_tests+=(--exclude "entresol-$crate")
done

# Debian's packages by the program that each is needed for.
packages=(qemu-system-x86_64:qemu-system-x86 memcached:memcached memccapable:libmemcached-tools
    go:golang-go nutcracker:nutcracker mkfs.ext4:e2fsprogs)

# Installs what is missing, in one go: two apt-get at a time lock each other out.
install_packages() {
    local pair missing=()
    for pair in "${packages[@]}"; do
        command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
    done
    python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
    [ ${#missing[@]} -eq 0 ] && return
    echo "installing ${missing[*]}"
    apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            "${missing[@]}" >/dev/null
}

took() {
    printf '%6d s  %s\n' "$2" "$1" >>"$logs/times"
    echo "== $1 took $2 s"
}

# step NAME COMMAND...: runs it; where it fails, the run ends.
step() {
    local name=$1 start=$SECONDS
    shift
    echo "== $name"
    "$@" || { echo "== $name failed after $((SECONDS - start)) s" >&2; exit 1; }
    took "$name" $((SECONDS - start))
}

declare -A lane=() begun=()

# beside NAME COMMAND...: runs it in one of two lanes, as soon as one is free. What it prints
# appears when it has ended.
beside() {
    local name=$1
    shift
    while [ ${#lane[@]} -ge 2 ]; do reap; done
    (
        status=0
        "$@" || status=$?
        echo "$SECONDS" >"$logs/$name.end"
        exit "$status"
    ) >"$logs/$name" 2>&1 &
    lane[$!]=$name begun[$!]=$SECONDS
}

# Waits for one of the lanes.
reap() {
    local process status=0 name seconds
    wait -n -p process "${!lane[@]}" || status=$?
    name=${lane[$process]}
    unset "lane[$process]"
    seconds=$(($(cat "$logs/$name.end" 2>/dev/null || echo "$SECONDS") - begun[$process]))
    echo "== $name"
    cat "$logs/$name"
    if [ "$status" -ne 0 ]; then
        echo "== $name failed with $status after $seconds s" >&2
        exit 1
    fi
    took "$name" "$seconds"
}

# Ends what is still running, when the run ends early.
end_lanes() {
    local process
    for process in "${!lane[@]}"; do
        pkill -P "$process" || true
        kill "$process" 2>/dev/null || true
    done
}

# Waits for both lanes.
join_lanes() {
    while [ ${#lane[@]} -gt 0 ]; do reap; done
}

# Lets cargo run test programs by timed-test.
count_times() {
    local host
    host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
    export "CARGO_TARGET_${host}_RUNNER=$PWD/.ci/timed-test"
}

# Runs the README's test command. Its output is in $logs/tests, and is shown where it fails.
tests() {
    count_times
    cargo test --workspace --release >"$logs/tests" 2>&1 || { cat "$logs/tests"; return 1; }
}

slowest_tests() {
    sed -nE 's/^test (.*) \.\.\. .*<([0-9.]+)s>$/\2 \1/p' "$logs/tests" | sort -rn |
        awk 'NR <= 10 { printf "%8.1f s  %s\n", $1, $2 }'
}
