package main

import (
	"warpgauge/extensions/accounts"
	"warpgauge/extensions/amd"
	health "warpgauge/extensions/health/extension"
	"warpgauge/extensions/live"
	recorder "warpgauge/extensions/recorder/extension"
	"warpgauge/extensions/remote"
	"warpgauge/pkg/exporter"
)

// extensions returns all extensions. Without any of them, the program builds and serves the same page. live stands before
// recorder, which keeps the past only if an extension before it shows it.
func extensions() []exporter.Extension {
	return []exporter.Extension{live.New(), recorder.New(), health.New(), remote.NewExtension(), new(amd.Extension), accounts.NewExtension()}
}
