package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

const (
	prometheusAddress = "127.0.0.1:9090"
	adapterPort       = "6443"
	metricsAPI        = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/" + workloads + "/"
	externalAPI       = "/apis/external.metrics.k8s.io/v1beta1/namespaces/" + workloads + "/"
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

func (n *node) startMonitoring() (string, error) {
	begin := time.Now()
	address, err := n.exporterAddress()
	if err != nil {
		return "", err
	}
	config := fmt.Sprintf(prometheusConfig, filepath.Join(n.repo, "deploy/prometheus/rules/recording.yml"), address)
	if err := os.WriteFile(n.path("prometheus.yml"), []byte(config), 0o644); err != nil {
		return "", err
	}
	if err := missing(n.tools.monitoring()); err != nil {
		return "", err
	}
	if _, err := n.launch("prometheus", n.tools.prometheus, "--config.file", n.path("prometheus.yml"),
		"--storage.tsdb.path", n.path("prometheus"), "--web.listen-address", prometheusAddress); err != nil {
		return "", err
	}
	if _, err := n.launch("prometheus-adapter", n.tools.adapter,
		"--config", filepath.Join(n.repo, "deploy/prometheus-adapter/rules.yml"),
		"--prometheus-url=http://"+prometheusAddress, "--metrics-relist-interval=5s", "--metrics-max-age=1m",
		"--bind-address=127.0.0.1", "--secure-port="+adapterPort, "--cert-dir", n.path("adapter"),
		"--lister-kubeconfig", n.path("admin.kubeconfig"), "--authentication-kubeconfig", n.path("admin.kubeconfig"),
		"--authorization-kubeconfig", n.path("admin.kubeconfig")); err != nil {
		return "", err
	}
	if err := n.apply("metrics.yaml"); err != nil {
		return "", err
	}
	var values []string
	err = n.wait(90*time.Second, func() (err error) {
		values, err = n.metric(metricsAPI + "pods/*/gpu_utilization")
		return err
	})
	return fmt.Sprintf("gpu_utilization of pods is %s after %s", strings.Join(values, ", "), since(begin)), err
}

// metric returns the values that the adapter answers, through the API server.
func (n *node) metric(path string) (out []string, err error) {
	body, err := n.client.Discovery().RESTClient().Get().AbsPath(strings.Split(path, "?")[0]).DoRaw(n.ctx)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			DescribedObject struct{ Kind, Name string } `json:"describedObject"`
			Value           string                      `json:"value"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	for _, i := range list.Items {
		out = append(out, strings.TrimSpace(i.DescribedObject.Name+" "+i.Value))
	}
	if out == nil {
		return nil, fmt.Errorf("%s has no values", path)
	}
	return out, nil
}

// autoscaler applies an example of deploy/prometheus-adapter/hpa with short windows and few
// replicas, because the check must be quick and the node has few GPUs.
func (n *node) autoscaler(file, name string, replicas int) error {
	text, err := os.ReadFile(filepath.Join(n.repo, "deploy/prometheus-adapter/hpa", file))
	if err != nil {
		return err
	}
	for _, document := range strings.Split(string(text), "\n---\n") {
		var hpa map[string]any
		if err := yaml.Unmarshal([]byte(document), &hpa); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if meta, _ := hpa["metadata"].(map[string]any); meta["name"] != name {
			continue
		}
		spec, _ := hpa["spec"].(map[string]any)
		spec["minReplicas"], spec["maxReplicas"] = 1, replicas
		delete(spec, "behavior")
		out, err := yaml.Marshal(hpa)
		if err != nil {
			return err
		}
		_, err = n.kubectl(string(out), "apply", "--validate=strict", "-f", "-")
		return err
	}
	return fmt.Errorf("%s has no %s", file, name)
}

const mostReplicas = 4

// scaleUp makes the GPUs busy; the autoscaler's new pods have GPUs, which are busy, too.
func (n *node) scaleUp() (string, error) {
	if err := n.autoscaler("pods.yml", "inference-by-utilization", mostReplicas); err != nil {
		return "", err
	}
	// As long as the GPUs idle nothing may happen.
	if err := n.wait(60*time.Second, n.scalesBy("inference-by-utilization")); err != nil {
		return "", err
	}
	if _, err := n.running("gpu=whole", 1); err != nil {
		return "", err
	}
	if err := n.load("busy"); err != nil {
		return "", err
	}
	begin := time.Now()
	pods, err := n.replicas(mostReplicas)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("1 to %d replicas in %s after the load", pods, since(begin))
	err = n.wait(30*time.Second, func() error {
		page, err := n.scrape()
		if err != nil {
			return err
		}
		have := map[string]bool{}
		for _, s := range page[utilization] {
			if s.labels["namespace"] == workloads && strings.HasPrefix(s.labels["pod"], "inference-") {
				have[s.labels["pod"]] = true
			}
		}
		if len(have) != mostReplicas {
			return fmt.Errorf("%d pods of the Deployment are on the page", len(have))
		}
		return nil
	})
	return text + "; each has a GPU of its own on the page", err
}

func (n *node) scaleDown() (string, error) {
	if err := n.load("idle"); err != nil {
		return "", err
	}
	begin := time.Now()
	if _, err := n.replicas(1); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d to 1 replica in %s after the load", mostReplicas, since(begin)), nil
}

// replicas waits until the Deployment's pods are so many, and run.
func (n *node) replicas(want int) (int, error) {
	err := n.wait(120*time.Second, func() error {
		_, status, err := n.condition("inference-by-utilization")
		if err != nil {
			return err
		}
		scale, err := n.kubectl("", "--namespace", workloads, "get", "deployment", "inference", "-o", "jsonpath={.spec.replicas}")
		if err == nil && scale != fmt.Sprint(want) {
			err = fmt.Errorf("%s replicas, want %d; the autoscaler says: %s", scale, want, status)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	pods, err := n.running("gpu=whole", want)
	return len(pods), err
}

// condition returns whether an autoscaler has its metric, and the message of its condition.
func (n *node) condition(name string) (active bool, text string, err error) {
	out, err := n.kubectl("", "--namespace", workloads, "get", "hpa", name, "-o", `jsonpath={range .status.conditions[*]}{.type}={.status} {.message};{end} {.status.currentMetrics}`)
	return strings.Contains(out, "ScalingActive=True"), out, err
}

func (n *node) scalesBy(name string) func() error {
	return func() error {
		active, text, err := n.condition(name)
		if err == nil && !active {
			err = errors.New(text)
		}
		return err
	}
}

// otherMetrics checks an External and an Object metric, both made from the histogram.
func (n *node) otherMetrics() (string, error) {
	err := errors.Join(
		n.autoscaler("external.yml", "feeder-by-saturation", 3),
		n.autoscaler("object.yml", "gateway-by-namespace", 3))
	if err != nil {
		return "", err
	}
	var text []string
	for _, hpa := range []struct{ name, deployment string }{{"feeder-by-saturation", "feeder"}, {"gateway-by-namespace", "gateway"}} {
		if err := n.wait(90*time.Second, func() error {
			_, status, err := n.condition(hpa.name)
			if err != nil {
				return err
			}
			scale, err := n.kubectl("", "--namespace", workloads, "get", "deployment", hpa.deployment, "-o", "jsonpath={.spec.replicas}")
			if err == nil && scale == "1" {
				err = fmt.Errorf("%s stays: %s", hpa.deployment, status)
			}
			if err == nil {
				text = append(text, fmt.Sprintf("%s: %s replicas", hpa.name, scale))
			}
			return err
		}); err != nil {
			return strings.Join(text, "\n"), err
		}
	}
	// What the recording rules count must be what the page shows.
	var free string
	err = n.wait(30*time.Second, func() error {
		page, err := n.scrape()
		if err != nil {
			return err
		}
		values, err := n.metric(externalAPI + "gpus_free")
		if err != nil {
			return err
		}
		free = strings.Join(values, ", ")
		if want := fmt.Sprint(len(page.devices(false)) - len(page.devices(true))); free != want {
			return fmt.Errorf("gpus_free is %s, %s GPUs have no pod on the page", free, want)
		}
		return nil
	})
	return strings.Join(append(text, "gpus_free is "+free), "\n"), err
}
