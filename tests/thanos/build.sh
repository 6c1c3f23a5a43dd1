#!/bin/sh
# Builds a Thanos for tests/collect, once per machine, and prints its path:
#   export TEST_THANOS=$(tests/thanos/build.sh)
# Needs Go 1.26.10 or newer and its module proxy: some minutes on two cores, 100 MB in the folder besides Go's caches.
set -eu
version=v0.42.5
sum=h1:92xtD5YT0cgeCFJmZdWsZLRkVh4cDWfSDb9AAiY4BN4=

cache=${XDG_CACHE_HOME:-$HOME/.cache}/foreshock
folder=$cache/thanos-$version-$(sha256sum <"$0" | cut -c 1-12)
mkdir -p "$cache"
exec 9>"$cache/thanos.lock"
flock 9 # one at a time; what a build that was killed left is no folder of ours

if ! [ -d "$folder" ]; then
    rm -rf "$cache/building-thanos"
    cd / # in no module
    module=$(go mod download -json "github.com/thanos-io/thanos@$version")
    if ! echo "$module" | grep -qF "\"Sum\": \"$sum\""; then
        echo "what the module proxy has of Thanos $version is not what was tried: $module" >&2
        exit 1
    fi
    # Built where it lies, what it replaces of others is replaced. Without its tag the sidecar dies at the first question.
    cd "$(echo "$module" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')"
    CGO_ENABLED=0 go build -trimpath -tags slicelabels -ldflags "-s -w" -o "$cache/building-thanos/" ./cmd/thanos >&2
    mv "$cache/building-thanos" "$folder"
fi
echo "$folder/thanos"
