// A CoreDNS with what tests/cluster/test_scraped_programs.py needs of it, as github.com/coredns/coredns/coredns.go is one with all its plugins.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/metrics"
)

func init() {
	// In the order of CoreDNS' plugin.cfg: the one before asks the one behind.
	dnsserver.Directives = []string{"bind", "health", "errors", "prometheus", "cache", "hosts", "forward"}
}

func main() {
	coremain.Run()
}
