package main

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"warpgauge/etc"
	"warpgauge/pkg/config"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/lists"
)

// newFiles returns what reads and parses the counters CSV at path, or if that is empty the configured one. level is that
// of the log, if a configuration file may change it.
func newFiles(a *app, cfg *config.Config, path string, level *zap.AtomicLevel) *lists.Files {
	readMap := func(ctx context.Context, namespace, name string) ([]byte, error) {
		return kube.ReadConfigMap(ctx, namespace, name, "warpgauge/"+a.build.Version)
	}
	return lists.NewFiles(cfg, cfg.Counters(path, readMap), etc.DefaultCounters(), level)
}

// count writes "1 error" and "2 errors".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
