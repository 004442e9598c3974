package helm_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"warpgauge/internal/testkit"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
)

// TestTargets: on a node with GPUs of both vendors Prometheus' own relabelling makes two targets of the two pods, for
// the Prometheus operator's monitors and for each scrape configuration here. For the rules that the operator adds
// before a monitor's relabelings see
// https://github.com/prometheus-operator/prometheus-operator/blob/main/pkg/prometheus/promcfg.go.
func TestTargets(t *testing.T) {
	operator := `
- {source_labels: [__meta_kubernetes_namespace], target_label: namespace}
- {source_labels: [__meta_kubernetes_pod_name], target_label: pod}
- {source_labels: [__meta_kubernetes_pod_container_name], target_label: container}
- {target_label: endpoint, replacement: metrics}
- {target_label: job, replacement: warpgauge}
`
	const serviceMonitor, podMonitor = `serviceMonitor.enabled=true`, `podMonitor.enabled=true`
	for _, c := range []struct {
		name, variant string
		sets          []string
		instances     int // number of different instance labels of the two targets
	}{
		{"ServiceMonitor", "", []string{serviceMonitor}, 1},
		{"PodMonitor", "", []string{podMonitor}, 1},
		{"PodMonitor, a port for AMD", "", []string{podMonitor, "amd.port=5000"}, 1},
		{"as dcgm-exporter's chart", "dcgm-exporter", []string{"amd.enabled=true"}, 2},
		{"kube-prometheus-stack", "prometheus-operator", nil, 1},
		{"hostNetwork", "", []string{serviceMonitor, "hostNetwork=true", "amd.port=9401"}, 1},
		{"deploy/prometheus/scrape/kubernetes.yml", "", nil, 1},
		// The default configuration of Prometheus' own chart for the Service's annotation keeps the instance.
		{"annotation of the Service", "", []string{"hostNetwork=true", "amd.port=9401"}, 2},
	} {
		o := render(t, c.variant, c.sets...)
		var text []byte
		switch monitor := slices.Concat(o.others["ServiceMonitor"], o.others["PodMonitor"]); {
		case len(monitor) == 1:
			text = slices.Concat([]byte(operator), relabelings(t, monitor[0]))
		case strings.HasSuffix(c.name, ".yml"):
			var file struct {
				Configs []struct {
					Rules any `yaml:"relabel_configs"`
				} `yaml:"scrape_configs"`
			}
			must(t, yaml.Unmarshal(read(t, "../prometheus/scrape/kubernetes.yml"), &file))
			text = encode(t, file.Configs[0].Rules)
		}
		var rules []*relabel.Config
		if err := yaml.Unmarshal(text, &rules); err != nil {
			t.Fatalf("%s: %v\n%s", c.name, err, text)
		}
		seen, instances := map[string]bool{}, map[string]bool{}
		for _, d := range o.daemonSets {
			target := targetOf(t, d, rules)
			seen[target.String()] = true
			instances[target.Get(model.InstanceLabel)] = true
			if c.instances == 1 && target.Get("vendor") != d.Labels["app.kubernetes.io/component"] {
				t.Errorf("%s: labels %s do not say the vendor", c.name, target)
			}
		}
		if len(o.daemonSets) != 2 || len(seen) != 2 || len(instances) != c.instances {
			t.Errorf("%s: %d targets of %d pods: %q; %d instances, want %d", c.name, len(seen), len(o.daemonSets), slices.Collect(maps.Keys(seen)), len(instances), c.instances)
		}
	}
}

// relabelings returns the relabelings of a monitor's endpoint in the form that the operator writes for Prometheus.
func relabelings(t *testing.T, monitor map[string]any) []byte {
	t.Helper()
	spec, _ := monitor["spec"].(map[string]any)
	for _, kind := range []string{"endpoints", "podMetricsEndpoints"} {
		if endpoints, _ := spec[kind].([]any); len(endpoints) == 1 {
			rules := endpoints[0].(map[string]any)["relabelings"]
			if rules == nil {
				return nil
			}
			return bytes.ReplaceAll(bytes.ReplaceAll(encode(t, rules), []byte("sourceLabels"), []byte("source_labels")), []byte("targetLabel"), []byte("target_label"))
		}
	}
	t.Fatalf("no endpoint in %v", spec)
	return nil
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	out := testkit.Get(yaml.Marshal(v))(t)
	return out
}

// targetOf returns the labels that Prometheus gives to the pod of a DaemonSet on the node worker-7.
func targetOf(t *testing.T, d *appsv1.DaemonSet, rules []*relabel.Config) labels.Labels {
	t.Helper()
	port := container(t, d).Ports[0]
	ip := map[string]string{"nvidia": "10.1.0.7", "amd": "10.1.0.8"}[d.Labels["app.kubernetes.io/component"]]
	if d.Spec.Template.Spec.HostNetwork {
		ip = "10.0.0.7"
	}
	meta := map[string]string{
		model.AddressLabel:            fmt.Sprintf("%s:%d", ip, port.ContainerPort),
		model.JobLabel:                "warpgauge",
		"__meta_kubernetes_namespace": "monitoring", "__meta_kubernetes_pod_name": d.Name + "-x7k2p", "__meta_kubernetes_pod_node_name": "worker-7",
		"__meta_kubernetes_pod_container_name": "exporter", "__meta_kubernetes_pod_container_port_name": port.Name,
	}
	for name, value := range d.Spec.Template.Labels {
		meta["__meta_kubernetes_pod_label_"+strings.NewReplacer(".", "_", "/", "_", "-", "_").Replace(name)] = value
	}
	for _, r := range rules {
		r.NameValidationScheme = model.UTF8Validation
	}
	b := labels.NewBuilder(labels.FromMap(meta))
	if !relabel.ProcessBuilder(b, rules...) {
		t.Fatalf("%s is dropped", d.Name)
	}
	out := b.Labels()
	if out.Get(model.InstanceLabel) == "" {
		b.Set(model.InstanceLabel, out.Get(model.AddressLabel))
	}
	b.Range(func(l labels.Label) {
		if strings.HasPrefix(l.Name, "__") {
			b.Del(l.Name)
		}
	})
	return b.Labels()
}
