package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// faultyNode is a Node object without a kubelet, so only the exporter writes to it.
const faultyNode = "node-with-faults"

// nodeHealth runs the exporter with the minimum permissions, loses a GPU and restores it, and checks the API server's
// objects.
func (n *node) nodeHealth() string {
	n.applyFile("health.yaml")
	config := n.kubeconfig("health", strings.TrimSpace(n.kubectl("create", "token", "node-health", "--namespace=default")))
	lost := n.path("lost")
	spec := n.write("faults.yaml", "faults:\n  - {device: 2, kind: lost, while: "+lost+"}\n", 0o600)
	exporter := n.launch("exporter-node-health", "env", "NODE_NAME="+faultyNode, "KUBECONFIG="+config,
		filepath.Join(n.repo, "bin/warpgauge"), "--address=127.0.0.1:9499", "--fake-spec="+spec,
		"--enable-only=fake", "--health-node-condition", "--health-node-events")
	defer exporter.stop()
	var text strings.Builder
	for _, step := range []struct {
		what, status, reason, event string
		do                          func()
	}{
		{"all GPUs are healthy", "False", "NoGPUProblem", "", func() {}},
		{"a GPU is lost", "True", "GPUFailed", "Warning GPUFailed", func() { must(os.WriteFile(lost, nil, 0o600)) }},
		// The rule requires the GPU to be present for a minute.
		{"it is there again", "False", "NoGPUProblem", "Normal GPURecovered", func() { must(os.Remove(lost)) }},
		{"the exporter stops", "Unknown", "ExporterStopped", "", exporter.stop},
	} {
		step.do()
		n.wait(2*time.Minute, func() {
			conditions := get(n.client.CoreV1().Nodes().Get(n.ctx, faultyNode, metav1.GetOptions{})).Status.Conditions
			i := slices.IndexFunc(conditions, func(c corev1.NodeCondition) bool {
				return c.Type == "GPUProblem" && string(c.Status) == step.status && c.Reason == step.reason
			})
			if i < 0 {
				fail("%s: conditions %+v", step.what, conditions)
			}
			fmt.Fprintf(&text, "%s: %s=%s, %s: %s\n", step.what, conditions[i].Type, step.status, step.reason, conditions[i].Message)
		})
		n.wait(time.Minute, func() {
			events := get(n.client.CoreV1().Events(metav1.NamespaceDefault).List(n.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + faultyNode})).Items
			if step.event != "" && !slices.ContainsFunc(events, func(e corev1.Event) bool { return e.Type+" "+e.Reason == step.event }) {
				fail("%s: no event %q among %d", step.what, step.event, len(events))
			}
		})
	}
	// The account has no further permissions, so these were enough for the checks above.
	as := "--as=system:serviceaccount:default:node-health"
	for _, denied := range []string{"get nodes", "list nodes", "update nodes", "patch nodes", "patch nodes --subresource=status", "get events", "patch events", "list pods"} {
		if try(func() { n.kubectl(append([]string{"auth", "can-i", as}, strings.Fields(denied)...)...) }) == nil {
			fail("%s is allowed", denied)
		}
	}
	return strings.TrimSpace(text.String())
}
