#!/bin/sh
# Builds the control plane that tools/go.mod names, once per machine, and prints the folder with its programs:
#   export KUBEBUILDER_ASSETS=$(tests/cluster/build.sh)
# Needs Go 1.26 or newer and its module proxy: some ten minutes on two cores, 4 GB in Go's caches, 350 MB in the folder.
set -eu
cd "$(dirname "$0")/tools"

version=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' go.mod)
key=$(cat go.mod go.sum ../build.sh | sha256sum | cut -c 1-12)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/foreshock
folder=$cache/kubernetes-$version-$key
mkdir -p "$cache"
exec 9>"$cache/kubernetes.lock"
flock 9 # one at a time; a build that was killed has let go of it, and what it left is no folder of ours

if ! [ -d "$folder" ]; then
    rm -rf "$cache/building"
    # What a build from the module proxy cannot ask git for: the version of /version, and of who asks (userAgent).
    minor=${version#v1.}
    named=
    for part in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        named="$named -X $part.gitVersion=$version -X $part.gitMajor=1 -X $part.gitMinor=${minor%%.*}"
    done
    CGO_ENABLED=0 go build -trimpath -ldflags "-s -w $named" -o "$cache/building/" tool >&2
    mv "$cache/building/server" "$cache/building/etcd" # Go calls a program like the last part of its path
    mv "$cache/building" "$folder"
fi
echo "$folder"
