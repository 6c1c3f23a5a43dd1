#!/bin/sh
# Builds a CoreDNS and a controller of controller-runtime for tests/cluster, once per machine, and prints their folder:
#   export TEST_SCRAPED=$(tests/cluster/scraped/build.sh)
# Needs Go 1.26 or newer and its module proxy, see docs/contributing.md for how long; 50 MB in the folder.
# Of the same Go and versions as the control plane (tests/cluster/tools), the controller finds most of its parts compiled.
set -eu
cd "$(dirname "$0")"

key=$(cat build.sh ./*/go.mod ./*/go.sum ./*/main.go | sha256sum | cut -c 1-12)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/foreshock
folder=$cache/scraped-$key
mkdir -p "$cache"
exec 9>"$cache/scraped.lock"
flock 9 # one at a time; what a build that was killed left is no folder of ours

if ! [ -d "$folder" ]; then
    rm -rf "$cache/building-scraped"
    for program in coredns controller; do
        (cd "$program" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$cache/building-scraped/" . >&2)
    done
    mv "$cache/building-scraped" "$folder"
fi
echo "$folder"
