package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// page holds the series of a scrape of the exporter's pod, by metric.
type page map[string][]series

type series struct{ labels map[string]string }

const metricsPort = "9400"

// exporterAddress returns the address of the DaemonSet's pod, once it is ready.
func (n *node) exporterAddress() (string, error) {
	pods, err := n.client.CoreV1().Pods(monitoring).List(n.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=nvidia"})
	if err != nil {
		return "", err
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && ready(&p) {
			return p.Status.PodIP + ":" + metricsPort, nil
		}
	}
	return "", fmt.Errorf("%d exporter pods, none of them ready%s", len(pods.Items), states(pods.Items))
}

// scrape reads the page through the pod's own address.
func (n *node) scrape() (page, error) {
	address, err := n.exporterAddress()
	if err != nil {
		return nil, err
	}
	return scrape(n.ctx, address)
}

func scrape(ctx context.Context, address string) (page, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		return nil, fmt.Errorf("%s: %s", answer.Status, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return nil, err
	}
	out := page{}
	for name, f := range families {
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			out[name] = append(out[name], series{labels})
		}
	}
	return out, nil
}

// of returns the series of a device.
func (p page) of(uuid string) (out []series) {
	for _, s := range p[utilization] {
		if s.labels["UUID"] == uuid {
			out = append(out, s)
		}
	}
	return out
}

// devices returns the GPUs on the page, all of them or those that pods have.
func (p page) devices(owned bool) map[string]bool {
	out := map[string]bool{}
	for _, s := range p[utilization] {
		if !owned || s.labels["pod"] != "" {
			out[s.labels["UUID"]] = true
		}
	}
	return out
}

// uuids returns the devices that a pod has, as the page says.
func (p page) uuids(namespace, pod string) (out []string) {
	for _, s := range p[utilization] {
		if s.labels["namespace"] == namespace && s.labels["pod"] == pod {
			out = append(out, s.labels["UUID"])
		}
	}
	return out
}

// owners returns who has which device, sorted.
func (p page) owners() (out []string) {
	for _, s := range p[utilization] {
		if s.labels["pod"] != "" {
			out = append(out, s.labels["namespace"]+"/"+s.labels["pod"]+" "+s.labels["UUID"])
		}
	}
	slices.Sort(out)
	return out
}

// has is an error that names the first of the owners that the page does not have.
func (p page) has(owners []string) error {
	have := p.owners()
	for _, o := range owners {
		if !slices.Contains(have, o) {
			return fmt.Errorf("%s is not on the page, which has %q", o, have)
		}
	}
	return nil
}
