package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	autoscaling "k8s.io/api/autoscaling/v2"
	"sigs.k8s.io/yaml"
)

const (
	prometheusAddress = "127.0.0.1:9090"
	adapterPort       = "6443"
	metricsAPI        = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/" + workloads + "/"
)

// Debian's Prometheus cannot ask the API server for targets, so its file of targets says
// the exporter's address.
const prometheusConfig = `global: { scrape_interval: 1s, evaluation_interval: 2s }
rule_files: [%q]
scrape_configs:
  - job_name: warpgauge
    honor_labels: true
    static_configs: [{ targets: [%q], labels: { instance: ` + nodeName + `, node: ` + nodeName + ` } }]
`

func (n *node) startMonitoring() string {
	begin := time.Now()
	config := n.write("prometheus.yml", fmt.Sprintf(prometheusConfig, filepath.Join(n.repo, "deploy/prometheus/rules/recording.yml"), n.exporterAddress()), 0o644)
	require(n.tools.prometheus, n.tools.adapter)
	n.launch("prometheus", n.tools.prometheus, "--config.file", config,
		"--storage.tsdb.path", n.path("prometheus"), "--web.listen-address", prometheusAddress)
	n.launch("prometheus-adapter", n.tools.adapter,
		"--config", filepath.Join(n.repo, "deploy/prometheus-adapter/rules.yml"),
		"--prometheus-url=http://"+prometheusAddress, "--metrics-relist-interval=5s", "--metrics-max-age=1m",
		"--bind-address=127.0.0.1", "--secure-port="+adapterPort, "--cert-dir", n.path("adapter"),
		"--lister-kubeconfig", n.path("admin.kubeconfig"), "--authentication-kubeconfig", n.path("admin.kubeconfig"),
		"--authorization-kubeconfig", n.path("admin.kubeconfig"))
	n.applyFile("metrics.yaml")
	var values []string
	n.wait(90*time.Second, func() { values = n.metric(metricsAPI + "pods/*/gpu_utilization") })
	return fmt.Sprintf("gpu_utilization of pods is %s after %s", strings.Join(values, ", "), since(begin))
}

// metric returns the values that the adapter answers, through the API server.
func (n *node) metric(path string) (out []string) {
	body := get(n.client.Discovery().RESTClient().Get().AbsPath(path).DoRaw(n.ctx))
	var list struct {
		Items []struct {
			DescribedObject struct{ Kind, Name string } `json:"describedObject"`
			Value           string                      `json:"value"`
		} `json:"items"`
	}
	must(json.Unmarshal(body, &list))
	for _, i := range list.Items {
		out = append(out, strings.TrimSpace(i.DescribedObject.Name+" "+i.Value))
	}
	if out == nil {
		fail("%s has no values", path)
	}
	return out
}

const mostReplicas = 4

// scaleUp makes the GPUs busy; the autoscaler's new pods have GPUs, which are busy, too.
func (n *node) scaleUp() string {
	// An example with a short window and few replicas, because the check must be quick and the node has few GPUs.
	var hpa autoscaling.HorizontalPodAutoscaler
	text, _, _ := strings.Cut(string(get(os.ReadFile(filepath.Join(n.repo, "deploy/prometheus-adapter/hpa/pods.yml")))), "\n---\n")
	must(yaml.UnmarshalStrict([]byte(text), &hpa))
	hpa.Spec.MinReplicas, hpa.Spec.MaxReplicas, hpa.Spec.Behavior = new(int32(1)), mostReplicas, nil
	n.apply(string(get(yaml.Marshal(hpa))))
	// As long as the GPUs idle nothing may happen.
	n.wait(60*time.Second, func() {
		if status := n.conditions("inference-by-utilization"); !strings.Contains(status, "ScalingActive=True") {
			fail("%s", status)
		}
	})
	n.running("gpu=whole", 1)
	n.load("busy")
	begin := time.Now()
	n.replicas(mostReplicas)
	took := since(begin)
	n.wait(30*time.Second, func() {
		have := map[string]bool{}
		for _, s := range n.scrape().with("namespace", workloads) {
			if strings.HasPrefix(s["pod"], "inference-") {
				have[s["pod"]] = true
			}
		}
		if len(have) != mostReplicas {
			fail("%d pods of the Deployment are on the page", len(have))
		}
	})
	return fmt.Sprintf("1 to %d replicas in %s after the load; each has a GPU of its own on the page", mostReplicas, took)
}

func (n *node) scaleDown() string {
	n.load("idle")
	begin := time.Now()
	n.replicas(1)
	return fmt.Sprintf("%d to 1 replica in %s after the load", mostReplicas, since(begin))
}

// replicas waits until the Deployment's pods are so many, and run.
func (n *node) replicas(want int) {
	n.wait(120*time.Second, func() {
		status := n.conditions("inference-by-utilization")
		if scale := n.kubectl("--namespace", workloads, "get", "deployment", "inference", "-o", "jsonpath={.spec.replicas}"); scale != fmt.Sprint(want) {
			fail("%s replicas, want %d; the autoscaler says: %s", scale, want, status)
		}
	})
	n.running("gpu=whole", want)
}

// conditions returns the conditions of an autoscaler with their messages, and its metrics.
func (n *node) conditions(name string) string {
	return n.kubectl("--namespace", workloads, "get", "hpa", name, "-o", `jsonpath={range .status.conditions[*]}{.type}={.status} {.message};{end} {.status.currentMetrics}`)
}
