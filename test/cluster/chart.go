package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// released returns the one file of the release that matches a pattern; "" if there is no release, or none in it.
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

// packageChart takes the package of the release, or packs the tree's chart: everything below installs that file.
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

// helmTest runs the test of the installed release.
func (n *node) helmTest() string {
	return n.helm("test", "warpgauge", "--namespace", monitoring, "--logs", "--timeout", "90s")
}

// dryRun lets the chart's own test ask, which knows all the variants.
func (n *node) dryRun() string {
	if n.crds == "" {
		panic(failure{skip("no folder of CRDs was given")})
	}
	n.kubectl("apply", "--server-side", "-f", n.crds)
	n.wait(30*time.Second, func() { n.kubectl("get", "servicemonitors,podmonitors,prometheusrules", "-A") })
	// For the variant with admin access to GPUs.
	n.kubectl("label", "namespace", "default", "resource.kubernetes.io/admin-access=true")
	out := n.command("", filepath.Join(n.repo, "deploy/helm"), "env", "WARPGAUGE_CHART="+n.chart, n.tools.chartTest, "-test.v", "-test.run", "^TestServer$")
	if !strings.Contains(out, "--- PASS: TestServer") {
		fail("the test did not run: %s", out)
	}
	variants := get(filepath.Glob(filepath.Join(n.repo, "deploy/helm/values/*.yaml")))
	return fmt.Sprintf("the defaults and %d files of values, without openshift.yaml, whose kinds are OpenShift's", len(variants)-1)
}

// dryRunPlain applies the plain manifests as a dry run.
func (n *node) dryRunPlain() string {
	for _, namespace := range []string{"warpgauge", workloads} {
		n.kubectl("create", "namespace", namespace)
	}
	count := 0
	for _, pattern := range []string{"deploy/kubernetes/*.yaml", "deploy/prometheus-adapter/hpa/*.yml"} {
		found := get(filepath.Glob(filepath.Join(n.repo, pattern)))
		if found == nil {
			fail("there is no %s", pattern)
		}
		for _, f := range found {
			n.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", f)
		}
		count += len(found)
	}
	return fmt.Sprintf("%d files", count)
}

// installWithoutLeave installs the chart with features that need permissions, and without
// the objects that grant them.
func (n *node) installWithoutLeave() string {
	values := string(get(manifests.ReadFile("manifests/values.yaml")))
	n.write("values.yaml", fmt.Sprintf(values, imageTag, sharedGPU), 0o644)
	n.install("kubernetes.rbac.create=false")
	return "at " + n.exporterAddress()
}

// install runs Helm. Of a DaemonSet of one pod Helm waits for none: the chart lets a part
// of the pods be unavailable, rounded up.
func (n *node) install(set string) {
	if err := try(func() {
		n.helm("upgrade", "--install", "warpgauge", n.chart,
			"--namespace", monitoring, "--create-namespace", "--values", n.path("values.yaml"), "--set", set, "--wait", "--timeout", "90s")
	}); err != nil {
		fail("%w\n%s", err, n.exporterLog())
	}
	n.wait(60*time.Second, func() { n.exporterAddress() })
}

func (n *node) exporterLog() string {
	return n.kubectl("--namespace", monitoring, "logs", "--selector", "app.kubernetes.io/component=nvidia", "--tail", "-1")
}

// installWithLeave adds the chart's RBAC objects, which the running pod notices.
func (n *node) installWithLeave() (text string) {
	n.install("kubernetes.rbac.create=true")
	pod := n.running("gpu=whole", 1)[0]
	n.wait(90*time.Second, func() {
		for _, s := range n.scrape().of(pod.Name) {
			text = describe(s)
			if s["pod_uid"] == string(pod.UID) && s["team"] == "vision" && s["app_kubernetes_io_name"] == "inference" {
				return
			}
		}
		fail("labels are %s", text)
	})
	return text
}

// uninstall checks that Helm leaves nothing behind.
func (n *node) uninstall() string {
	must(os.WriteFile(n.log("exporter"), []byte(n.exporterLog()), 0o644))
	n.helm("uninstall", "warpgauge", "--namespace", monitoring, "--wait", "--timeout", "60s")
	n.wait(30*time.Second, func() {
		if out := n.kubectl("get", "all,serviceaccounts,configmaps,secrets,clusterroles,clusterrolebindings", "-A",
			"-l", "app.kubernetes.io/instance=warpgauge", "-o", "name"); strings.Contains(out, "/") {
			fail("%s", out)
		}
	})
	return ""
}
