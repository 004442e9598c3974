package main

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// startWorkloads starts pods that request GPUs.
func (n *node) startWorkloads() string {
	n.kubectl("create", "namespace", workloads)
	n.applyFile("workloads.yaml")
	n.kubectl("--namespace", workloads, "rollout", "status", "deployment/inference", "--timeout=60s")
	return n.kubectl("--namespace", workloads, "wait", "--for=condition=Ready", "pods", "--all", "--timeout=60s")
}

// install installs or upgrades the release and waits for its pod.
func (n *node) install(rbac string) string {
	values := strings.NewReplacer("TAG", imageTag, "SHARED", sharedGPU).Replace(string(get(manifests.ReadFile("manifests/values.yaml"))))
	n.helm("upgrade", "--install", "warpgauge", n.chart, "--namespace", monitoring, "--create-namespace",
		"--values", n.write("values.yaml", values, 0o644), "--set", "kubernetes.rbac.create="+rbac)
	return n.kubectl("--namespace", monitoring, "rollout", "status", "daemonset/warpgauge-nvidia", "--timeout=120s")
}

// installWithoutLeave installs the chart with features that need permissions, but without the objects that grant them.
func (n *node) installWithoutLeave() string { return n.install("false") }

var utilization = regexp.MustCompile(`(?m)^DCGM_FI_DEV_GPU_UTIL\{.*$`)

// scrape returns the utilization series from the pod's own address.
func (n *node) scrape() []string {
	pods := get(n.client.CoreV1().Pods(monitoring).List(n.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=nvidia"})).Items
	if len(pods) != 1 {
		fail("%d exporter pods", len(pods))
	}
	request := get(http.NewRequestWithContext(n.ctx, http.MethodGet, "http://"+pods[0].Status.PodIP+":9400/metrics", nil))
	client := http.Client{Timeout: 5 * time.Second}
	answer := get(client.Do(request))
	defer func() { _ = answer.Body.Close() }()
	return utilization.FindAllString(string(get(io.ReadAll(answer.Body))), -1)
}

// expect waits until exactly want series have all the labels.
func (n *node) expect(want int, labels ...string) {
	n.wait(90*time.Second, func() {
		found, page := 0, n.scrape()
		for _, s := range page {
			missing := false
			for _, l := range labels {
				missing = missing || !strings.Contains(s, l)
			}
			if !missing {
				found++
			}
		}
		if found != want {
			fail("%d series have %q, want %d, in:\n%s", found, labels, want, strings.Join(page, "\n"))
		}
	})
}

// owners compares the page with the API server's pods. The running pod adds labels and UIDs when the RBAC objects appear.
func (n *node) owners() string {
	whole := get(n.client.CoreV1().Pods(workloads).List(n.ctx, metav1.ListOptions{LabelSelector: "gpu=whole"})).Items
	pod := []string{`namespace="` + workloads + `"`, `pod="` + whole[0].Name + `"`, `container="server"`}
	n.expect(1, pod...)
	n.expect(0, `pod_uid=`)
	for i, name := range []string{"shared-a", "shared-b"} {
		n.expect(1, `UUID="`+n.uuids[sliced]+`"`, `pod="`+name+`"`)
		n.expect(1, `UUID="`+n.uuids[sliced]+`"`, `vgpu="`+string(rune('0'+i))+`"`)
	}
	n.expect(3, `,pod="`)
	n.install("true")
	n.expect(1, append(pod, `pod_uid="`+string(whole[0].UID)+`"`, `team="vision"`, `app_kubernetes_io_name="inference"`)...)
	return ""
}

// helmTest runs the test of the installed release.
func (n *node) helmTest() string {
	return n.helm("test", "warpgauge", "--namespace", monitoring, "--logs", "--timeout", "90s")
}

// uninstall checks that Helm leaves nothing behind.
func (n *node) uninstall() string {
	log := n.kubectl("--namespace", monitoring, "logs", "--selector", "app.kubernetes.io/component=nvidia", "--tail", "-1")
	must(os.WriteFile(n.log("exporter"), []byte(log), 0o644))
	n.helm("uninstall", "warpgauge", "--namespace", monitoring, "--wait", "--timeout", "60s")
	n.wait(30*time.Second, func() {
		if out := n.kubectl("get", "all,serviceaccounts,configmaps,secrets,clusterroles,clusterrolebindings", "-A",
			"-l", "app.kubernetes.io/instance=warpgauge", "-o", "name"); strings.Contains(out, "/") {
			fail("%s", out)
		}
	})
	return ""
}
