package main

import (
	"errors"
	"fmt"

	"warpgauge/pkg/config"
	"warpgauge/pkg/fleet"
)

// parseYAML checks a list in YAML as an exporter does that gets it.
func parseYAML(content []byte, name string) ([]string, error) {
	c, problems, err := config.ParseDelivered(content, name, true)
	for _, p := range problems {
		err = errors.Join(err, p)
	}
	if err != nil {
		return nil, fmt.Errorf("list %q: %w", name, err)
	}
	return fleet.ParseCSV(c.CSV, name)
}
