package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// startPrometheus returns the address of a Prometheus that scrapes the nodes under their names.
func startPrometheus(ctx context.Context, all *processes, nodes []*node) (string, error) {
	rules, err := filepath.Abs("deploy/prometheus/rules/recording.yml")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	// Often, so that some minutes make a picture. The rules keep their own intervals.
	b.WriteString("global: {scrape_interval: 5s, scrape_timeout: 5s, evaluation_interval: 5s}\n")
	fmt.Fprintf(&b, "rule_files: [%q]\nscrape_configs:\n- job_name: warpgauge\n  honor_labels: true\n  static_configs:\n", rules)
	for _, t := range nodes {
		fmt.Fprintf(&b, "  - {targets: [%q], labels: {instance: %q}}\n", t.address, t.name)
	}
	config := filepath.Join(all.dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte(b.String()), 0o600); err != nil {
		return "", err
	}
	address, err := address(ctx)
	if err != nil {
		return "", err
	}
	return "http://" + address, all.start(ctx, "prometheus", "prometheus", nil,
		"--config.file="+config, "--storage.tsdb.path="+filepath.Join(all.dir, "data"), "--web.listen-address="+address,
		"--web.console.libraries="+all.dir, "--web.console.templates="+all.dir, "--log.level=warn")
}
