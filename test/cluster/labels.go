package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// owners compares the page with the API server's pods.
func (n *node) owners() (string, error) {
	pods, err := n.running("gpu=whole", 1)
	if err != nil {
		return "", err
	}
	p := pods[0]
	var text string
	err = n.wait(30*time.Second, func() error {
		page, err := n.scrape()
		if err != nil {
			return err
		}
		found := page.uuids(p.Namespace, p.Name)
		if len(found) != 1 {
			return fmt.Errorf("%s/%s has the devices %q on the page", p.Namespace, p.Name, found)
		}
		series := page.of(found[0])
		if len(series) != 1 || series[0].labels["container"] != p.Spec.Containers[0].Name {
			return fmt.Errorf("series of %s: %v", found[0], series)
		}
		if len(page.devices(false)) == len(page.devices(true)) {
			return errors.New("every GPU has a pod")
		}
		text = describe(series[0])
		return nil
	})
	return text, err
}

// describe writes the labels that say who has a device.
func describe(s series) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.labels)) {
		switch name {
		case "device", "modelName", "hostname", "pci_bus_id", "DCGM_FI_DRIVER_VERSION":
		default:
			out = append(out, name+"="+s.labels[name])
		}
	}
	return strings.Join(out, " ")
}

func (n *node) message() (string, error) {
	page, err := n.scrape()
	if err != nil {
		return "", err
	}
	for _, s := range page[utilization] {
		if s.labels["pod_uid"] != "" || s.labels["team"] != "" {
			return "", fmt.Errorf("labels of a pod without leave to read it: %s", describe(s))
		}
	}
	var text string
	err = n.wait(60*time.Second, func() error {
		logs, err := n.exporterLog()
		if err != nil {
			return err
		}
		lines := strings.Split(logs, "\n")
		text = ""
		for _, what := range []string{"pods", "resourceslices"} {
			i := slices.IndexFunc(lines, func(l string) bool {
				return strings.Contains(l, "forbidden") && strings.Contains(l, "list "+what+": ")
			})
			if i < 0 {
				return fmt.Errorf("no message about %s in the log: %s", what, logs)
			}
			text += lines[i] + "\n"
		}
		return nil
	})
	return text, err
}

func (n *node) slices() (string, error) {
	var text []string
	err := n.wait(30*time.Second, func() error {
		page, err := n.scrape()
		if err != nil {
			return err
		}
		text = nil
		var who []string
		for _, s := range page.of(n.uuids[sliced]) {
			text = append(text, describe(s))
			who = append(who, s.labels["pod"]+" "+s.labels["vgpu"])
		}
		slices.Sort(who)
		if len(who) != 2 || !strings.HasPrefix(who[0], "shared-a ") || !strings.HasPrefix(who[1], "shared-b ") ||
			strings.TrimPrefix(who[0], "shared-a ") == strings.TrimPrefix(who[1], "shared-b ") {
			return fmt.Errorf("series: %q", text)
		}
		return nil
	})
	return strings.Join(text, "\n"), err
}

func (n *node) dynamic() (string, error) {
	if err := n.startDRA(map[string]string{fmt.Sprintf("gpu-%d", dra): n.uuids[dra]}); err != nil {
		return "", err
	}
	if err := n.apply("dra.yaml"); err != nil {
		return "", err
	}
	if _, err := n.running("gpu=dra", 1); err != nil {
		return "", err
	}
	var text string
	err := n.wait(60*time.Second, func() error {
		page, err := n.scrape()
		if err != nil {
			return err
		}
		series := page.of(n.uuids[dra])
		if len(series) != 1 || series[0].labels["pod"] != "claimed" || series[0].labels["namespace"] != workloads {
			return fmt.Errorf("series: %v", series)
		}
		text = describe(series[0])
		return nil
	})
	return text, err
}
