package main

import (
	"slices"
	"strings"
	"time"
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
