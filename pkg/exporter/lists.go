package exporter

import (
	"context"

	"go.uber.org/zap"

	"warpgauge/etc"
	"warpgauge/pkg/config"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/lists"
)

// NewFiles returns what reads and parses the counters CSV at path, or if that is empty the configured one. level is that
// of the log, if a configuration file may change it.
func (a *Program) NewFiles(cfg *config.Config, path string, level *zap.AtomicLevel) *lists.Files {
	readMap := func(ctx context.Context, namespace, name string) ([]byte, error) {
		return kube.ReadConfigMap(ctx, namespace, name, "warpgauge/"+a.Build.Version)
	}
	return lists.NewFiles(cfg, cfg.Counters(path, readMap), etc.DefaultCounters(), level)
}
