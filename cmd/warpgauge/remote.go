package main

import (
	"context"
	"net/url"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/config"
	"warpgauge/pkg/remote"
)

// remoteSource is where lists come from.
func remoteSource(cfg *config.Remote, node *remote.Node, log *zap.Logger) (remote.Source, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, err // config has checked it
	}
	credentials := remote.Credentials{TokenFile: cfg.TokenFile, CAFile: cfg.CAFile, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile}
	if strings.HasPrefix(u.Scheme, "opamp+") {
		return opampSource(cfg, u, node, func(error) {}, func() {}, prometheus.NewRegistry(), log)
	}
	return remote.NewURL(remote.URLOptions{
		URL: u, Transport: remote.NewTransport(u, credentials), Interval: cfg.Interval, Node: node, MaxBytes: cfg.Limits.Bytes, Logger: log.Named("remote"),
	}), nil
}

// remoteStage asks the server.
func remoteStage(cfg *config.Remote, log *zap.Logger) (stage, error) {
	node := &remote.Node{Labels: cfg.NodeLabels}
	source, err := remoteSource(cfg, node, log)
	if err != nil {
		return stage{}, err
	}
	deliver := func(context.Context, *remote.Offer) *remote.Outcome { return nil }
	return stage{name: "lists of " + remote.Origin(cfg.URL), grace: shortGrace, run: func(ctx context.Context) error { return source.Run(ctx, deliver) }}, nil
}
