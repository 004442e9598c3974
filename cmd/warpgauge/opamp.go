package main

import (
	"net/url"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/config"
	"warpgauge/pkg/opamp"
	"warpgauge/pkg/remote"
)

// opampSource is the agent of an OpAMP server at u, whose scheme begins with opamp+.
func opampSource(cfg *config.Remote, u *url.URL, node *remote.Node, failed func(error), answered func(), r prometheus.Registerer, log *zap.Logger) (remote.Source, error) {
	server := *u
	server.Scheme = strings.TrimPrefix(u.Scheme, "opamp+")
	// A WebSocket begins with an HTTP request, which is what the transport sees.
	request := server
	request.Scheme = strings.Replace(server.Scheme, "ws", "http", 1)
	o := opamp.Options{
		URL: &server, Transport: remote.NewTransport(&request, remote.Credentials{
			TokenFile: cfg.TokenFile, CAFile: cfg.CAFile, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile,
		}),
		Interval: cfg.Interval, MaxBytes: cfg.Limits.Bytes, Node: node, Failed: failed, Answered: answered, Logger: log,
		Ignored: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_opamp_ignored_offers_total",
			Help: "Messages of the OpAMP server with something that the agent does not take: packages, connection settings, restart command, custom message.",
		}, []string{"offer"}),
	}
	r.MustRegister(o.Ignored)
	return opamp.New(o)
}
