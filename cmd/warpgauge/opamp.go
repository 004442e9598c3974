package main

import (
	"net/url"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/extensions/remote"
	"warpgauge/extensions/remote/opamp"
)

// opampSource is the agent of an OpAMP server at u, whose scheme begins with opamp+.
func (d *delivery) opampSource(u *url.URL, node *remote.Node) (remote.Source, error) {
	cfg := &d.cfg.Remote
	server := *u
	server.Scheme = strings.TrimPrefix(u.Scheme, "opamp+")
	// A WebSocket begins with an HTTP request, which is what the transport sees.
	request := server
	request.Scheme = strings.Replace(server.Scheme, "ws", "http", 1)
	o := opamp.Options{
		URL: &server, Transport: remote.NewTransport(&request, remote.Credentials{
			TokenFile: cfg.TokenFile, CAFile: cfg.CAFile, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile,
		}),
		Interval: cfg.Interval, MaxBytes: cfg.Limits.Bytes, Node: node, Logger: d.log,
		Failed: d.Unreachable, Answered: d.Answered, Refused: d.Refused,
		Ignored: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_opamp_ignored_offers_total",
			Help: "Messages of the OpAMP server with something that the agent does not take: packages, connection settings, restart command, custom message.",
		}, []string{"offer"}),
	}
	d.p.registry.MustRegister(o.Ignored)
	return opamp.New(o)
}
