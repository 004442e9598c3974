package main

import (
	"warpgauge/extensions/amd"
	health "warpgauge/extensions/health/extension"
	"warpgauge/extensions/live"
	"warpgauge/extensions/remote"
	"warpgauge/pkg/exporter"
)

// extensions is the table of extensions. The program builds and serves the same page without any of them.
func extensions() []exporter.Extension {
	return []exporter.Extension{live.New(), health.New(), remote.NewExtension(), new(amd.Extension)}
}
