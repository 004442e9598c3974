package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// released returns the one file of the release that matches a pattern; "" if there is no release, or none in it.
func (n *node) released(pattern string) (string, error) {
	if n.release == "" {
		return "", nil
	}
	found, err := filepath.Glob(filepath.Join(n.release, pattern))
	switch {
	case err != nil || len(found) == 0:
		return "", err
	case len(found) > 1:
		return "", fmt.Errorf("%d files are %s/%s", len(found), n.release, pattern)
	}
	return found[0], nil
}

// packageChart takes the package of the release, or packs the tree's chart: everything below installs that file.
func (n *node) packageChart() (string, error) {
	var err error
	if n.chart, err = n.released("warpgauge-chart-*.tgz"); err != nil {
		return "", err
	}
	if n.chart == "" {
		if n.release != "" {
			return "", fmt.Errorf("%s has no chart", n.release)
		}
		if _, err := n.command("", n.dir, n.tools.helm, "package", filepath.Join(n.repo, "deploy/helm/warpgauge"), "--destination", n.dir); err != nil {
			return "", err
		}
		found, err := filepath.Glob(n.path("warpgauge-*.tgz"))
		if err != nil || len(found) != 1 {
			return "", fmt.Errorf("helm package has made %q: %w", found, err)
		}
		n.chart = found[0]
	}
	return filepath.Base(n.chart), nil
}

// helmTest runs the test of the installed release.
func (n *node) helmTest() (string, error) {
	return n.command("", n.dir, n.tools.helm, "test", "warpgauge", "--namespace", monitoring, "--logs", "--timeout", "90s")
}

// dryRun lets the chart's own test ask, which knows all the variants.
func (n *node) dryRun() (string, error) {
	if n.crds == "" {
		return "", skip("no folder of CRDs was given")
	}
	if _, err := n.kubectl("", "apply", "--server-side", "-f", n.crds); err != nil {
		return "", err
	}
	if err := n.wait(30*time.Second, func() error {
		_, err := n.kubectl("", "get", "servicemonitors,podmonitors,prometheusrules", "-A")
		return err
	}); err != nil {
		return "", err
	}
	// For the variant with admin access to GPUs.
	if _, err := n.kubectl("", "label", "namespace", "default", "resource.kubernetes.io/admin-access=true"); err != nil {
		return "", err
	}
	out, err := n.command("", filepath.Join(n.repo, "deploy/helm"), "env", "WARPGAUGE_CHART="+n.chart, n.tools.chartTest, "-test.v", "-test.run", "^TestServer$")
	if err != nil {
		return "", err
	}
	if !strings.Contains(out, "--- PASS: TestServer") {
		return "", fmt.Errorf("the test did not run: %s", out)
	}
	variants, err := filepath.Glob(filepath.Join(n.repo, "deploy/helm/values/*.yaml"))
	return fmt.Sprintf("the defaults and %d files of values, without openshift.yaml, whose kinds are OpenShift's", len(variants)-1), err
}

// dryRunPlain applies the plain manifests as a dry run.
func (n *node) dryRunPlain() (string, error) {
	for _, namespace := range []string{"warpgauge", workloads} {
		if _, err := n.kubectl("", "create", "namespace", namespace); err != nil {
			return "", err
		}
	}
	count := 0
	for _, pattern := range []string{"deploy/kubernetes/*.yaml", "deploy/prometheus-adapter/hpa/*.yml"} {
		found, err := filepath.Glob(filepath.Join(n.repo, pattern))
		if err != nil || found == nil {
			return "", cmp.Or(err, errors.New("there is no "+pattern))
		}
		for _, f := range found {
			if _, err := n.kubectl("", "apply", "--dry-run=server", "--validate=strict", "-f", f); err != nil {
				return "", err
			}
		}
		count += len(found)
	}
	return fmt.Sprintf("%d files", count), nil
}

// installWithoutLeave installs the chart with features that need permissions, and without
// the objects that grant them.
func (n *node) installWithoutLeave() (string, error) {
	if err := errors.Join(os.WriteFile(n.path("fake/spec.yaml"), []byte(faults()), 0o644), n.load("idle")); err != nil {
		return "", err
	}
	values, err := manifests.ReadFile("manifests/values.yaml")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(n.path("values.yaml"), fmt.Appendf(nil, string(values), imageTag, sharedGPU, n.path("fake")), 0o644); err != nil {
		return "", err
	}
	if err := n.install("kubernetes.rbac.create=false"); err != nil {
		return "", err
	}
	address, err := n.exporterAddress()
	return "at " + address, err
}

// faults are the part of the simulation's script that load switches.
func faults() string {
	spec := "faults:\n"
	for file, percent := range map[string]int{"busy": 97, "idle": 5} {
		spec += fmt.Sprintf("  - {device: 0-%d, kind: value, field: %s, value: %d, while: /fake/%s}\n", dra, utilization, percent, file)
	}
	return spec
}

// install runs Helm. Of a DaemonSet of one pod Helm waits for none: the chart lets a part
// of the pods be unavailable, rounded up.
func (n *node) install(set string) error {
	_, err := n.command("", n.dir, n.tools.helm, "upgrade", "--install", "warpgauge", n.chart,
		"--namespace", monitoring, "--create-namespace", "--values", n.path("values.yaml"), "--set", set, "--wait", "--timeout", "90s")
	if err != nil {
		logs, _ := n.exporterLog()
		return fmt.Errorf("%w\n%s", err, logs)
	}
	return n.wait(60*time.Second, func() error {
		_, err := n.exporterAddress()
		return err
	})
}

func (n *node) exporterLog() (string, error) {
	return n.kubectl("", "--namespace", monitoring, "logs", "--selector", "app.kubernetes.io/component=nvidia", "--tail", "-1")
}

// installWithLeave adds the chart's RBAC objects, which the running pod notices.
func (n *node) installWithLeave() (string, error) {
	if err := n.install("kubernetes.rbac.create=true"); err != nil {
		return "", err
	}
	pods, err := n.running("gpu=whole", 1)
	if err != nil {
		return "", err
	}
	var text string
	err = n.wait(90*time.Second, func() error {
		page, err := n.scrape()
		if err != nil {
			return err
		}
		for _, uuid := range page.uuids(workloads, pods[0].Name) {
			series := page.of(uuid)[0]
			text = describe(series)
			if series.labels["pod_uid"] == string(pods[0].UID) && series.labels["team"] == "vision" && series.labels["app_kubernetes_io_name"] == "inference" {
				return nil
			}
		}
		return fmt.Errorf("labels are %s", text)
	})
	return text, err
}

// uninstall checks that Helm leaves nothing behind.
func (n *node) uninstall() (string, error) {
	text, err := n.exporterLog()
	if err := errors.Join(err, os.WriteFile(n.log("exporter"), []byte(text), 0o644)); err != nil {
		return "", err
	}
	if _, err := n.command("", n.dir, n.tools.helm, "uninstall", "warpgauge", "--namespace", monitoring, "--wait", "--timeout", "60s"); err != nil {
		return "", err
	}
	return "", n.wait(30*time.Second, func() error {
		out, err := n.kubectl("", "get", "all,serviceaccounts,configmaps,secrets,clusterroles,clusterrolebindings", "-A",
			"-l", "app.kubernetes.io/instance=warpgauge", "-o", "name")
		if err == nil && strings.Contains(out, "/") {
			err = errors.New(out)
		}
		return err
	})
}
