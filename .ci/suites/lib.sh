# Shared by the suites: where things lie, starting and stopping the server under test, counting.
#
# MEMCACHED_BIN names a program that understands memcached's flags. By default it is as-memcached
# beside this file, which starts `entresol serve`; with MEMCACHED_BIN=memcached a suite runs
# against memcached itself, which is how a suite is checked.

suites=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$suites/../.." && pwd)
export SUITES_WORK=${SUITES_WORK:-$repository/target/suites}
export MEMCACHED_BIN=${MEMCACHED_BIN:-$suites/as-memcached}
export ENTRESOL_MEDIUM_DIR=$SUITES_WORK/media-$$
mkdir -p "$SUITES_WORK" "$ENTRESOL_MEDIUM_DIR"

server_pids=()
stop_servers() {
    local pid
    for pid in "${server_pids[@]:-}"; do
        [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    done
    for pid in "${server_pids[@]:-}"; do
        [ -z "$pid" ] || wait "$pid" 2>/dev/null || true
    done
    server_pids=()
}
trap 'stop_servers; rm -rf "$ENTRESOL_MEDIUM_DIR"' EXIT

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# The packages of Debian that are missing, installed only where the command is missing.
need() {
    local command=$1 package=$2
    command -v "$command" >/dev/null && return 0
    echo "installing $package for $command"
    [ -n "${APT_UPDATED:-}" ] || { apt-get update -qq; export APT_UPDATED=1; }
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null
}

# A port that was free a moment ago.
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# start_server PORT [FLAG ...]: the server under test on 127.0.0.1:PORT, ready when this returns.
start_server() {
    local port=$1 log=$SUITES_WORK/server-$1.log
    shift
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
        fail "port $port is in use; stop what listens there"
    fi
    "$MEMCACHED_BIN" -u root -U 0 -l 127.0.0.1 -p "$port" "$@" >"$log" 2>&1 &
    local pid=$!
    server_pids+=("$pid")
    local tries
    for tries in $(seq 200); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            return 0
        fi
        kill -0 "$pid" 2>/dev/null || { cat "$log" >&2; fail "the server did not start"; }
        sleep 0.05
    done
    cat "$log" >&2
    fail "the server did not listen on port $port within 10 s"
}

# server_version PORT: what the server under test answers to `version`.
server_version() {
    exec 3<>"/dev/tcp/127.0.0.1/$1"
    printf 'version\r\n' >&3
    local line
    read -r -t 5 line <&3 || line="no answer to version"
    exec 3>&-
    printf '%s\n' "${line%$'\r'}"
}

# expect_passes SUITE PASSED EXPECTED: the one line a reader looks for, and the verdict.
expect_passes() {
    local suite=$1 passed=$2 expected=$3
    echo "suite $suite: $passed of $expected expected tests passed"
    [ "$passed" -eq "$expected" ] || fail "expected exactly $expected passes, got $passed"
}
