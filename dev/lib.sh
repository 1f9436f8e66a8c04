# shellcheck shell=bash
# What the scripts of dev/ share: where things lie, how missing packages and the Rust toolchain get
# here, how a build is made. Sourced, never run.
#
# Invariants: nothing is written into the source tree; only what is missing is installed; a script
# that sourced this ends every process that it started (`at_exit`), however it ends.
set -euo pipefail

SKEP_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SKEP_CACHE=${SKEP_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/skep}
# A build folder for each checkout: cargo takes a test program for fresh when its sources are older, also when it
# was built in another checkout, whose vectors it would then read.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$SKEP_CACHE/target-$(cksum <<<"$SKEP_ROOT" | cut -d' ' -f1)}
export PATH="${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:$PATH:/usr/sbin:/sbin"
RUST_MIN=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$SKEP_ROOT/Cargo.toml")

# Debian packages by purpose; a name here is installed when `dpkg` does not know it as installed.
PACKAGES_BUILD=(build-essential cmake ca-certificates curl protobuf-compiler libprotobuf-dev)
PACKAGES_CLIENTS=(ceph-common librados2 librbd1 python3-rados python3-rbd qemu-utils qemu-block-extra fio)
PACKAGES_TEST=("${PACKAGES_CLIENTS[@]}" ceph-base ceph-fuse python3-cephfs python3-pytest python3-pytest-xdist python3-cryptography jq
    etcd-server etcd-client debootstrap openssl iproute2 iptables strace valgrind qemu-system-x86 busybox-static cpio kmod
    rbd-mirror rbd-fuse rbd-nbd python3-prometheus-client python3-requests chromium chromium-driver python3-selenium python3-yaml s3cmd rclone python3-boto3 python3-swiftclient python3-keystoneclient radosgw restic)
# For tests that are long: a real Ceph beside Skep, what go-ceph is compiled against, OpenStack's drivers.
PACKAGES_LONG=(ceph-mon ceph-mgr ceph-osd ceph-mds radosgw librados-dev librbd-dev libcephfs-dev python3-glance-store python3-nova python3-cinder python3-ddt python3-keystone
    systemd-container libvirt-daemon-system libvirt-clients libvirt-daemon-driver-storage-rbd libvirt-daemon-driver-qemu)
# The tests of NFS and Samba gateways (tests/files/test_gateways.py) run where nfs-ganesha-ceph, libnfs-utils, rpcbind, samba-vfs-modules, samba and
# smbclient are: not installed unasked either, for the same reason as below.
# Prometheus, its node exporter and Ceph's Grafana boards and alert rules are fetched and unpacked by the tests that use them
# (tests/lib/skeptest/boards.py), for the same reason.
# The lab's tests of remote hosts start sshd processes of their own, on loopback and in network namespaces, where openssh-server is: it is not
# installed unasked, since its package starts a daemon that listens to the world. Those of whole clusters over such hosts run where etcd-server,
# ceph-mon, ceph-mgr, ceph-osd, glusterfs-server and SKEP_BIN are; all others reach their hosts by a fake ssh.
PACKAGES_LAB=(fio openssh-client)
PACKAGES_DEMO=("${PACKAGES_CLIENTS[@]}" qemu-system-x86 syslinux syslinux-common mtools dosfstools
    e2fsprogs fdisk kmod cpio jq xz-utils)

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $*"; exit 1; }

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

# Clean-up steps, run once in reverse order when the script ends for whatever reason.
AT_EXIT=()
at_exit() { AT_EXIT+=("$*"); }
run_at_exit() {
    local status=$? i
    trap - EXIT INT TERM HUP
    for ((i = ${#AT_EXIT[@]} - 1; i >= 0; i--)); do eval "${AT_EXIT[i]}" || true; done
    exit "$status"
}
trap run_at_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# need_packages NAME...: installs those Debian packages that are missing, without asking.
need_packages() {
    local missing=() p
    for p in "$@"; do
        dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed || missing+=("$p")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || die "these packages are missing and there is no apt-get: ${missing[*]}"
    [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null ||
        die "these packages are missing; install them as root: apt-get install ${missing[*]}"
    say "installing ${missing[*]}"
    local log; log=$(mktemp)
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" \
        >"$log" 2>&1 ||
        { as_root apt-get update >>"$log" 2>&1 &&
            as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
                "${missing[@]}" >>"$log" 2>&1; } ||
        { tail -n 20 "$log" >&2; rm -f "$log"; die "apt-get could not install: ${missing[*]}"; }
    rm -f "$log"
}

# need_rust [COMPONENT...]: a cargo that is new enough, by rustup where there is none.
need_rust() {
    if ! command -v cargo >/dev/null; then
        need_packages ca-certificates curl
        if apt-cache show rustup >/dev/null 2>&1; then
            need_packages rustup
        else
            say "installing the Rust toolchain by rustup"
            local dir; dir=$(mktemp -d)
            curl -fsS --retry 3 -o "$dir/rustup-init" \
                "${RUSTUP_UPDATE_ROOT:-https://static.rust-lang.org/rustup}/dist/$(uname -m)-unknown-linux-gnu/rustup-init" ||
                die "no Rust toolchain, and rustup could not be fetched: install Rust $RUST_MIN or newer"
            chmod +x "$dir/rustup-init"
            "$dir/rustup-init" -y -q --profile minimal --no-modify-path --default-toolchain none >&2
            rm -rf "$dir"
        fi
    fi
    if ! rust_is_new_enough; then
        command -v rustup >/dev/null || die "Rust $RUST_MIN or newer is needed; here is $(cargo --version)"
        say "installing Rust $RUST_MIN by rustup"
        rustup toolchain install "$RUST_MIN" --profile minimal >&2
        export RUSTUP_TOOLCHAIN=$RUST_MIN
        rust_is_new_enough || die "Rust $RUST_MIN could not be installed"
    fi
    local c
    for c in "$@"; do
        cargo "$c" --version >/dev/null 2>&1 && continue
        command -v rustup >/dev/null || die "cargo $c is missing; install it"
        rustup component add "${c/fmt/rustfmt}" >&2
    done
}

rust_is_new_enough() {
    local have
    have=$(cargo --version 2>/dev/null | awk '{print $2}') || return 1
    [ -n "$have" ] && [ "$(printf '%s\n%s\n' "$RUST_MIN" "$have" | sort -V | head -n 1)" = "$RUST_MIN" ]
}

# build_skep: release build of the program; sets SKEP_BIN. A SKEP_BIN of the caller's is kept.
build_skep() {
    [ -z "${SKEP_BIN:-}" ] || { [ -x "$SKEP_BIN" ] || die "SKEP_BIN is not a program: $SKEP_BIN"; return 0; }
    need_packages "${PACKAGES_BUILD[@]}"
    need_rust
    cargo build --manifest-path "$SKEP_ROOT/Cargo.toml" --release --locked -p skep >&2
    SKEP_BIN=$CARGO_TARGET_DIR/release/skep
    export SKEP_BIN
}

# build_tested_skep: the program as its crates' tests are built, with debug assertions; sets SKEP_BIN, and SKEP_MAPTOOL (see
# tests/maps). A SKEP_BIN of the caller's is kept. All packages and any one test are named because features are then resolved as for `cargo test --workspace`, and each crate
# is compiled once for both.
build_tested_skep() {
    [ -z "${SKEP_BIN:-}" ] || { [ -x "$SKEP_BIN" ] || die "SKEP_BIN is not a program: $SKEP_BIN"; return 0; }
    need_packages "${PACKAGES_BUILD[@]}"
    need_rust
    cargo build --manifest-path "$SKEP_ROOT/Cargo.toml" --locked --workspace --bin skep --example maptool --test licences >&2
    SKEP_BIN=$CARGO_TARGET_DIR/debug/skep SKEP_MAPTOOL=$CARGO_TARGET_DIR/debug/examples/maptool
    export SKEP_BIN SKEP_MAPTOOL
}

# What the tests need of PyPI, fetched where it is not there. Sets SKEP_TEST_BOTO3: where a boto3 of the day is, which sends what Debian's
# does not yet; SKEP_TEST_AXE: axe-core, as a package for another driver of browsers has it; SKEP_TEST_KUBERNETES: a program that checks
# manifests by Kubernetes' schemas, which it has in it.
BOTO3=1.44.5 AXE_PACKAGE=axe-playwright-python==0.1.8 KUBERNETES_VALIDATE=1.37.0
python_of_the_day() {
    local dir=$SKEP_CACHE/tests-$BOTO3-${AXE_PACKAGE##*=}-$KUBERNETES_VALIDATE
    if [ ! -e "$dir/complete" ]; then
        rm -rf "$dir"
        python3 -m venv "$dir" 2>/dev/null || { need_packages python3-venv; python3 -m venv "$dir"; }
        "$dir/bin/pip" install -q --disable-pip-version-check "boto3[crt]==$BOTO3" >&2
        "$dir/bin/pip" install -q --disable-pip-version-check --no-deps "$AXE_PACKAGE" >&2
        "$dir/bin/pip" install -q --disable-pip-version-check "kubernetes-validate==$KUBERNETES_VALIDATE" >&2
        touch "$dir/complete"
    fi
    SKEP_TEST_BOTO3=$(echo "$dir"/lib/python3*/site-packages)
    SKEP_TEST_AXE=$SKEP_TEST_BOTO3/axe_playwright_python/axe.min.js
    SKEP_TEST_KUBERNETES=$dir/bin/kubernetes-validate
    export SKEP_TEST_BOTO3 SKEP_TEST_AXE SKEP_TEST_KUBERNETES
}

# Sets `venv`: an environment with what the lab and its tests need, made where there is none; the lab itself is taken from the tree.
lab_environment() {
    local project=$SKEP_ROOT/lab
    venv=$SKEP_CACHE/lab-venv-$(cksum <"$project/pyproject.toml" | cut -d' ' -f1)
    [ ! -e "$venv/complete" ] || return 0
    # The lab's step of CI and the system's tests of the lab may both be the first.
    local lock
    mkdir -p "$SKEP_CACHE"
    exec {lock}>"$venv.lock"
    flock "$lock"
    [ -e "$venv/complete" ] || make_lab_environment
    exec {lock}>&-
}

make_lab_environment() {
    rm -rf "$venv"
    python3 -m venv "$venv" 2>/dev/null || { need_packages python3-venv; python3 -m venv "$venv"; }
    "$venv/bin/python" - "$project/pyproject.toml" >"$venv/requirements" <<'PY'
import sys, tomllib
project = tomllib.load(open(sys.argv[1], "rb"))["project"]
print("\n".join(project["dependencies"] + project["optional-dependencies"]["test"]))
PY
    "$venv/bin/pip" install -q --disable-pip-version-check -r "$venv/requirements" >&2
    touch "$venv/complete"
}
