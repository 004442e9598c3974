package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (n *node) startWorkloads() (string, error) {
	if err := n.apply("workloads.yaml"); err != nil {
		return "", err
	}
	pods, err := n.running("", 3)
	return strings.Join(names(pods), "\n"), err
}

// running waits for so many pods that run.
func (n *node) running(selector string, want int) (pods []corev1.Pod, err error) {
	err = n.wait(60*time.Second, func() error {
		list, err := n.client.CoreV1().Pods(workloads).List(n.ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		pods = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		if len(pods) != want || slices.ContainsFunc(pods, func(p corev1.Pod) bool { return !ready(&p) }) {
			return fmt.Errorf("%d pods in %s, want %d that are ready%s", len(pods), workloads, want, states(pods))
		}
		return nil
	})
	return pods, err
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func names(pods []corev1.Pod) (out []string) {
	for _, p := range pods {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return out
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
			if c.State.Waiting != nil {
				fmt.Fprintf(&out, ", %s: %s", c.Name, c.State.Waiting.Message)
			}
		}
	}
	return out.String()
}
