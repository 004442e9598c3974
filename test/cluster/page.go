package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// page holds the labels of each series of the utilization on a page of the exporter's pod.
type page []map[string]string

const metricsPort = "9400"

// exporterAddress returns the address of the DaemonSet's pod, once it is ready.
func (n *node) exporterAddress() string {
	pods := n.podsOf(monitoring, "app.kubernetes.io/component=nvidia")
	for _, p := range pods {
		if ready(p) {
			return p.Status.PodIP + ":" + metricsPort
		}
	}
	fail("%d exporter pods, none of them ready%s", len(pods), states(pods))
	return ""
}

// scrape reads the page through the pod's own address.
func (n *node) scrape() page { return n.scrapeAt(n.exporterAddress()) }

func (n *node) scrapeAt(address string) (out page) {
	request := get(http.NewRequestWithContext(n.ctx, http.MethodGet, "http://"+address+"/metrics", nil))
	client := http.Client{Timeout: 5 * time.Second}
	answer := get(client.Do(request))
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		fail("%s: %s", answer.Status, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	for _, m := range get(parser.TextToMetricFamilies(answer.Body))[utilization].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		out = append(out, labels)
	}
	return out
}

// with returns the series whose label has a value.
func (p page) with(label, value string) (out page) {
	for _, s := range p {
		if s[label] == value {
			out = append(out, s)
		}
	}
	return out
}

// of returns the series of a pod of the workloads.
func (p page) of(pod string) page { return p.with("namespace", workloads).with("pod", pod) }

// owners returns who has which device, sorted.
func (p page) owners() (out []string) {
	for _, s := range p {
		if s["pod"] != "" {
			out = append(out, s["namespace"]+"/"+s["pod"]+" "+s["UUID"])
		}
	}
	slices.Sort(out)
	return out
}

// describe writes the labels that say who has a device.
func describe(labels map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if !slices.Contains([]string{"device", "modelName", "hostname", "pci_bus_id", "DCGM_FI_DRIVER_VERSION"}, name) {
			out = append(out, name+"="+labels[name])
		}
	}
	return strings.Join(out, " ")
}

// podsOf returns the pods that are not ending.
func (n *node) podsOf(namespace, selector string) []corev1.Pod {
	list := get(n.client.CoreV1().Pods(namespace).List(n.ctx, metav1.ListOptions{LabelSelector: selector}))
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// running waits for so many pods that run.
func (n *node) running(selector string, want int) (pods []corev1.Pod) {
	n.wait(60*time.Second, func() {
		pods = n.podsOf(workloads, selector)
		if len(pods) != want || slices.ContainsFunc(pods, func(p corev1.Pod) bool { return !ready(p) }) {
			fail("%d pods in %s, want %d that are ready%s", len(pods), workloads, want, states(pods))
		}
	})
	return pods
}

func ready(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// states says what pods wait for.
func states(pods []corev1.Pod) string {
	var out strings.Builder
	for _, p := range pods {
		fmt.Fprintf(&out, "; %s %s %s", p.Name, p.Status.Phase, p.Status.Message)
		for _, c := range p.Status.Conditions {
			if c.Status != corev1.ConditionTrue && c.Message != "" {
				fmt.Fprintf(&out, ", %s", c.Message)
			}
		}
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil {
				fmt.Fprintf(&out, ", %s: %s", c.Name, w.Message)
			}
		}
	}
	return out.String()
}
