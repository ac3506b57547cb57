#!/usr/bin/env bash
# Provides a real Kubernetes API server for the tests: etcd, kube-apiserver and
# kube-controller-manager (of which the tests use the garbage collector).
#
#   scripts/kube_assets.sh [FOLDER]     default: the user's cache, where the tests look
#
# Where they are already, in that folder or in $KUBEBUILDER_ASSETS, it does nothing. Else they
# are made of Debian's packages: etcd's binary, and Kubernetes 1.20 compiled from its source
# package, which carries all that it needs (about six minutes on two cores, once). Needs
# Debian or a derivative and the right to install packages.
set -euo pipefail

folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/ditk_ray/kube-assets}
programs=(kube-apiserver kube-controller-manager)
version=v1.20.2

say() { printf '[kube-assets] %s\n' "$*"; }
complete() { for name in etcd "${programs[@]}"; do [ -x "$1/$name" ] || return 1; done; }

for found in "${KUBEBUILDER_ASSETS:-}" "$folder"; do
  if [ -n "$found" ] && complete "$found"; then
    say "$found has them"
    exit 0
  fi
done
command -v apt-get >/dev/null || {
  say "this is no Debian: set KUBEBUILDER_ASSETS to a folder with etcd, ${programs[*]}"
  exit 2
}

started=$SECONDS
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

say "1/4 the compiler and its tools"
as_root apt-get update -qq
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
  dpkg-dev golang-go rsync make golang-github-modern-go-reflect2-dev >/dev/null

say "2/4 the source of Kubernetes $version"
# Sources of the suites this machine uses already, in a list of our own: nothing of the
# machine's own settings changes.
mkdir -p "$work/parts" "$work/lists/partial"
for list in /etc/apt/sources.list.d/*.sources; do
  [ -e "$list" ] && sed 's/^Types:.*/Types: deb-src/' "$list" >"$work/parts/${list##*/}"
done
if [ -s /etc/apt/sources.list ]; then
  sed -E 's/^deb /deb-src /' /etc/apt/sources.list >"$work/parts/main.list"
fi
chmod -R a+rX "$work"
from_source=(-o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$work/parts"
  -o "Dir::State::Lists=$work/lists" -o "APT::Sandbox::User=root")
apt-get update -qq "${from_source[@]}"
(cd "$work" && apt-get source -qq "${from_source[@]}" kubernetes >/dev/null 2>&1)
source=$(find "$work" -maxdepth 1 -type d -name 'kubernetes-*')
# The vendored reflect2 predates Go 1.18 and crashes on custom resources.
reflect2=$source/vendor/github.com/modern-go/reflect2
cp /usr/share/gocode/src/github.com/modern-go/reflect2/*.{go,s} "$reflect2"
rm -f "$reflect2"/go_above_17.go "$reflect2"/go_below_19.go

say "3/4 compiling (minutes)"
mkdir -p "$folder"
if ! make -C "$source" all WHAT="${programs[*]/#/cmd/}" GOFLAGS="" \
  KUBE_GIT_VERSION=$version KUBE_GIT_TREE_STATE=archive KUBE_GIT_COMMIT=x \
  KUBE_GIT_MAJOR=1 KUBE_GIT_MINOR=20 >"$work/build.log" 2>&1; then
  tail -n 30 "$work/build.log"
  exit 1
fi
for name in "${programs[@]}"; do
  install -m 755 "$source/_output/local/bin/linux/$(go env GOARCH)/$name" "$folder/$name"
done

say "4/4 etcd"
(cd "$work" && apt-get download -qq -o "APT::Sandbox::User=root" etcd-server >/dev/null 2>&1)
dpkg-deb -x "$work"/etcd-server_*.deb "$work/etcd"
install -m 755 "$work/etcd/usr/bin/etcd" "$folder/etcd"
say "ready in $folder after $((SECONDS - started)) s"
