package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kubelet is away for longer than the exporter's interval of asking it, 5 s.
const kubeletAway = 7 * time.Second

// restartKubelet scrapes without a pause from before the kubelet ends until the page has a
// pod that was made after it came back.
func (n *node) restartKubelet() (string, error) {
	address, err := n.exporterAddress()
	if err != nil {
		return "", err
	}
	want, err := n.steady()
	if err != nil {
		return "", err
	}
	ctx, stop := context.WithCancel(n.ctx)
	defer stop()
	scrapes, failed := 0, make(chan error, 1)
	go func() {
		defer close(failed)
		for ; ctx.Err() == nil; scrapes++ {
			p, err := scrape(n.ctx, address)
			if err == nil {
				err = p.has(want)
			}
			if err != nil {
				failed <- fmt.Errorf("scrape %d: %w", scrapes, err)
				return
			}
		}
	}()
	n.kubelet.stop()
	for _, p := range n.plugins {
		p.close()
	}
	time.Sleep(kubeletAway)
	begin := time.Now()
	err = errors.Join(n.startKubelet(), n.registerPlugins(), n.wait(60*time.Second, func() error { return n.leaseSince(begin) }), n.nodeReady())
	back := since(begin)
	if err == nil {
		err = n.apply("fresh.yaml")
	}
	if err == nil {
		_, err = n.running("gpu=fresh", 1)
	}
	begin = time.Now()
	if err == nil {
		err = n.wait(60*time.Second, func() error {
			if page, err := n.scrape(); err != nil || page.uuids(workloads, "fresh") == nil {
				return fmt.Errorf("a pod made after the restart is not on the page: %w", cmp.Or(err, errNotYet))
			}
			return nil
		})
	}
	fresh := since(begin)
	stop()
	err = errors.Join(err, <-failed)
	return fmt.Sprintf("%d scrapes with all %d pods; the kubelet was away for %v and took %s to come back; a new pod was on the page %s after it ran",
		scrapes, len(want), kubeletAway, back, fresh), err
}

// steady waits until the page has the pods that run, and no others, and returns them
// with their devices.
func (n *node) steady() (out []string, err error) {
	err = n.wait(30*time.Second, func() error {
		list, err := n.client.CoreV1().Pods(workloads).List(n.ctx, metav1.ListOptions{LabelSelector: "gpu"})
		if err != nil {
			return err
		}
		pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		page, err := n.scrape()
		if err != nil {
			return err
		}
		if out = page.owners(); len(out) != len(pods) {
			return fmt.Errorf("%d pods have GPUs, on the page are %q", len(pods), out)
		}
		return nil
	})
	return out, err
}

// leaseSince is content when the kubelet has told the API server that it lives.
func (n *node) leaseSince(t time.Time) error {
	lease, err := n.client.CoordinationV1().Leases("kube-node-lease").Get(n.ctx, nodeName, metav1.GetOptions{})
	if err == nil && lease.Spec.RenewTime.Time.Before(t) {
		err = errNotYet
	}
	return err
}
