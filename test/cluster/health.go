package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// faultyNode is a Node of the API without a kubelet, so only the exporter writes
// to it.
const faultyNode = "node-with-faults"

// nodeHealth runs the exporter with the least leave that suffices, loses a GPU and finds it
// again, and reads what the API server has of it.
func (n *node) nodeHealth() (string, error) {
	if err := n.apply("health.yaml"); err != nil {
		return "", err
	}
	token, err := n.kubectl("", "create", "token", "node-health", "--namespace=default")
	if err != nil {
		return "", err
	}
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://%s:443", certificate-authority: %s}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
`, serviceIP, n.path("ca.crt"), strings.TrimSpace(token))
	lost, spec := n.path("lost"), n.path("faults.yaml")
	err = errors.Join(os.WriteFile(n.path("health.kubeconfig"), []byte(config), 0o600),
		os.WriteFile(spec, []byte("faults:\n  - {device: 2, kind: lost, while: "+lost+"}\n"), 0o600))
	if err != nil {
		return "", err
	}
	exporter, err := n.launch("exporter-node-health", "env", "NODE_NAME="+faultyNode, "KUBECONFIG="+n.path("health.kubeconfig"),
		filepath.Join(n.repo, "bin/warpgauge"), "--address=127.0.0.1:9499", "--fake-spec="+spec,
		"--enable-only=fake", "--health-node-condition", "--health-node-events")
	if err != nil {
		return "", err
	}
	defer exporter.stop()
	var text strings.Builder
	say := func(what string) func(corev1.NodeCondition) {
		return func(c corev1.NodeCondition) {
			fmt.Fprintf(&text, "%s: %s=%s, %s: %s\n", what, c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for _, step := range []struct {
		what, status, reason, event string
		do                          func() error
	}{
		{"all GPUs are healthy", "False", "NoGPUProblem", "", func() error { return nil }},
		{"a GPU is lost", "True", "GPUFailed", "Warning GPUFailed", func() error { return os.WriteFile(lost, nil, 0o600) }},
		// The rule wants it to be there for a minute.
		{"it is there again", "False", "NoGPUProblem", "Normal GPURecovered", func() error { return os.Remove(lost) }},
		{"the exporter stops", "Unknown", "ExporterStopped", "", func() error { exporter.stop(); return nil }},
	} {
		if err := step.do(); err != nil {
			return "", err
		}
		if err := n.awaitCondition(step.status, step.reason, say(step.what)); err != nil {
			return "", fmt.Errorf("%s: %w", step.what, err)
		}
		if step.event != "" {
			if err := n.awaitEvent(step.event); err != nil {
				return "", fmt.Errorf("%s: %w", step.what, err)
			}
		}
	}
	described, err := n.kubectl("", "describe", "node", faultyNode)
	if err == nil && (!strings.Contains(described, "GPURecovered") || !strings.Contains(described, "GPUProblem")) {
		err = errors.New("kubectl describe node shows neither condition nor events")
	}
	return strings.TrimSpace(text.String()), errors.Join(err, n.leastLeave())
}

func (n *node) awaitCondition(status, reason string, found func(corev1.NodeCondition)) error {
	return n.wait(2*time.Minute, func() error {
		node, err := n.client.CoreV1().Nodes().Get(n.ctx, faultyNode, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == "GPUProblem" && string(c.Status) == status && c.Reason == reason {
				found(c)
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", node.Status.Conditions)
	})
}

func (n *node) awaitEvent(want string) error {
	return n.wait(time.Minute, func() error {
		events, err := n.client.CoreV1().Events(metav1.NamespaceDefault).List(n.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + faultyNode})
		if err != nil {
			return err
		}
		for i := range events.Items {
			if e := &events.Items[i]; e.Type+" "+e.Reason == want {
				return nil
			}
		}
		return fmt.Errorf("no event %q among %d", want, len(events.Items))
	})
}

// leastLeave checks that the account has no further permissions, so the checks before needed no more.
func (n *node) leastLeave() error {
	as := "--as=system:serviceaccount:default:node-health"
	for _, denied := range []string{"get nodes", "list nodes", "update nodes", "patch nodes", "patch nodes --subresource=status", "get events", "patch events", "list pods"} {
		if answer, err := n.kubectl("", append([]string{"auth", "can-i", as}, strings.Fields(denied)...)...); err == nil {
			return fmt.Errorf("%s is allowed: %s", denied, strings.TrimSpace(answer))
		}
	}
	return nil
}
