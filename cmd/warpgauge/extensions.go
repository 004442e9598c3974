package main

import (
	health "warpgauge/extensions/health/extension"
	"warpgauge/extensions/live"
	"warpgauge/pkg/exporter"
)

// extensions is the table of extensions. The program builds and serves the same page without any of them.
func extensions() []exporter.Extension {
	return []exporter.Extension{live.New(), health.New(), amdExtension{}}
}
