package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// released returns the only file of the release that matches a pattern; "" without a release or a match.
func (n *node) released(pattern string) string {
	if n.release == "" {
		return ""
	}
	found := get(filepath.Glob(filepath.Join(n.release, pattern)))
	if len(found) > 1 {
		fail("%d files are %s/%s", len(found), n.release, pattern)
	}
	return strings.Join(found, "")
}

// packageChart uses the release's package, or packs the tree's chart. The functions below install that file.
func (n *node) packageChart() string {
	n.chart = n.released("warpgauge-chart-*.tgz")
	if n.chart == "" {
		if n.release != "" {
			fail("%s has no chart", n.release)
		}
		n.helm("package", filepath.Join(n.repo, "deploy/helm/warpgauge"), "--destination", n.dir)
		found := get(filepath.Glob(n.path("warpgauge-*.tgz")))
		if len(found) != 1 {
			fail("helm package has made %q", found)
		}
		n.chart = found[0]
	}
	return filepath.Base(n.chart)
}

// dryRun runs the chart's own test against the API server; that test knows all variants.
func (n *node) dryRun() string {
	n.kubectl("apply", "--server-side", "-f", n.crds)
	n.wait(30*time.Second, func() { n.kubectl("get", "servicemonitors,podmonitors,prometheusrules", "-A") })
	// The variant with admin access to GPUs needs this label.
	n.kubectl("label", "namespace", "default", "resource.kubernetes.io/admin-access=true")
	out := n.command("", filepath.Join(n.repo, "deploy/helm"), "env", "WARPGAUGE_CHART="+n.chart, "chart.test", "-test.v", "-test.run", "^TestServer$")
	if !strings.Contains(out, "--- PASS: TestServer") {
		fail("the test did not run: %s", out)
	}
	variants := get(filepath.Glob(filepath.Join(n.repo, "deploy/helm/values/*.yaml")))
	return fmt.Sprintf("the defaults and %d files of values, without openshift.yaml, whose kinds are OpenShift's", len(variants)-1)
}
