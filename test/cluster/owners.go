package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (n *node) startWorkloads() string {
	n.applyFile("workloads.yaml")
	var names []string
	for _, p := range n.running("", 3) {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	return strings.Join(names, "\n")
}

// owners compares the page with the API server's pods.
func (n *node) owners() (text string) {
	p := n.running("gpu=whole", 1)[0]
	n.wait(30*time.Second, func() {
		page := n.scrape()
		found := page.of(p.Name)
		if len(found) != 1 || len(page.with("UUID", found[0]["UUID"])) != 1 || found[0]["container"] != p.Spec.Containers[0].Name {
			fail("series of %s/%s on the page: %v", p.Namespace, p.Name, found)
		}
		if len(page.with("pod", "")) == 0 {
			fail("every GPU has a pod")
		}
		text = describe(found[0])
	})
	return text
}

func (n *node) message() (text string) {
	for _, s := range n.scrape() {
		if s["pod_uid"] != "" || s["team"] != "" {
			fail("labels of a pod without leave to read it: %s", describe(s))
		}
	}
	n.wait(60*time.Second, func() {
		lines := strings.Split(n.exporterLog(), "\n")
		text = ""
		for _, what := range []string{"pods", "resourceslices"} {
			i := slices.IndexFunc(lines, func(l string) bool {
				return strings.Contains(l, "forbidden") && strings.Contains(l, "list "+what+": ")
			})
			if i < 0 {
				fail("no message about %s in the log: %s", what, strings.Join(lines, "\n"))
			}
			text += lines[i] + "\n"
		}
	})
	return text
}

func (n *node) slices() string {
	var text []string
	n.wait(30*time.Second, func() {
		text = nil
		var who []string
		for _, s := range n.scrape().with("UUID", n.uuids[sliced]) {
			text = append(text, describe(s))
			who = append(who, s["pod"]+" "+s["vgpu"])
		}
		slices.Sort(who)
		if len(who) != 2 || !strings.HasPrefix(who[0], "shared-a ") || !strings.HasPrefix(who[1], "shared-b ") ||
			strings.TrimPrefix(who[0], "shared-a ") == strings.TrimPrefix(who[1], "shared-b ") {
			fail("series: %q", text)
		}
	})
	return strings.Join(text, "\n")
}

func (n *node) dynamic() (text string) {
	n.startDRA(map[string]string{fmt.Sprintf("gpu-%d", dra): n.uuids[dra]})
	n.applyFile("dra.yaml")
	n.running("gpu=dra", 1)
	n.wait(60*time.Second, func() {
		series := n.scrape().with("UUID", n.uuids[dra])
		if len(series) != 1 || len(series.of("claimed")) != 1 {
			fail("series: %v", series)
		}
		text = describe(series[0])
	})
	return text
}

// The kubelet is away for longer than the exporter's interval of asking it, 5 s.
const kubeletAway = 7 * time.Second

// restartKubelet scrapes without a pause from before the kubelet ends until the page has a
// pod that was made after it came back.
func (n *node) restartKubelet() string {
	address, want := n.exporterAddress(), n.steady()
	ctx, stop := context.WithCancel(n.ctx)
	defer stop()
	scrapes, failed := 0, make(chan error, 1)
	go func() {
		failed <- try(func() {
			for ; ctx.Err() == nil; scrapes++ {
				have := n.scrapeAt(address).owners()
				for _, o := range want {
					if !slices.Contains(have, o) {
						fail("scrape %d: %s is not on the page, which has %q", scrapes, o, have)
					}
				}
			}
		})
	}()
	var back, fresh string
	err := try(func() {
		n.kubelet.stop()
		for _, p := range n.plugins {
			p.close()
		}
		time.Sleep(kubeletAway)
		begin := time.Now()
		n.startKubelet()
		n.registerPlugins()
		n.wait(60*time.Second, func() {
			lease := get(n.client.CoordinationV1().Leases("kube-node-lease").Get(n.ctx, nodeName, metav1.GetOptions{}))
			if lease.Spec.RenewTime.Time.Before(begin) {
				fail("the kubelet has not renewed its lease")
			}
		})
		n.nodeReady()
		back = since(begin)
		n.applyFile("fresh.yaml")
		n.running("gpu=fresh", 1)
		begin = time.Now()
		n.wait(60*time.Second, func() {
			if n.scrape().of("fresh") == nil {
				fail("a pod made after the restart is not on the page")
			}
		})
		fresh = since(begin)
	})
	stop()
	must(err, <-failed)
	return fmt.Sprintf("%d scrapes with all %d pods; the kubelet was away for %v and took %s to come back; a new pod was on the page %s after it ran",
		scrapes, len(want), kubeletAway, back, fresh)
}

// steady waits until the page has the pods that run, and no others, and returns them
// with their devices.
func (n *node) steady() (out []string) {
	n.wait(30*time.Second, func() {
		pods := n.podsOf(workloads, "gpu")
		if out = n.scrape().owners(); len(out) != len(pods) {
			fail("%d pods have GPUs, on the page are %q", len(pods), out)
		}
	})
	return out
}
