package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// page holds one answer of the exporter: series by the name of their family.
type page map[string]model.Vector

// scrape fetches a page.
func scrape(ctx context.Context, url string) (page, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return readPage(resp.Body)
}

func readPage(r io.Reader) (page, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, fmt.Errorf("read the exporter's page: %w", err)
	}
	p := make(page, len(families))
	for name, f := range families {
		if p[name], err = expfmt.ExtractSamples(&expfmt.DecodeOptions{}, f); err != nil {
			return nil, fmt.Errorf("read the exporter's page: %w", err)
		}
	}
	return p, nil
}

func label(s *model.Sample, name string) string { return string(s.Metric[model.LabelName(name)]) }

// gpuOf returns the UUID of a series' GPU. Series of links use another label.
func gpuOf(s *model.Sample) string { return cmp.Or(label(s, "UUID"), label(s, "gpu_uuid")) }

// further lists the labels of a GPU's parts, and those that distinguish several series of one field.
var further = []string{"GPU_I_ID", "GPU_CI_ID", "nvlink", "xid", "clock_event", "health_watch", "peer_gpu"}

// value returns a GPU's own reading.
func (p page) value(metric, uuid string) (float64, bool) {
	i := slices.IndexFunc(p[metric], func(s *model.Sample) bool {
		return gpuOf(s) == uuid && !slices.ContainsFunc(further, func(name string) bool { return label(s, name) != "" })
	})
	if i < 0 {
		return 0, false
	}
	return float64(p[metric][i].Value), true
}

// text returns a label of a GPU's series, for a field of type label.
func (p page) text(name, uuid string) string {
	for _, family := range p {
		for _, s := range family {
			if v := label(s, name); v != "" && gpuOf(s) == uuid && label(s, "GPU_I_ID") == "" {
				return v
			}
		}
	}
	return ""
}

// uncompared returns a GPU's families without a check.
func (p page) uncompared(uuid string) map[string]bool {
	out := map[string]bool{}
	for name, family := range p {
		known := slices.ContainsFunc(checks, func(c check) bool { return c.metric == name })
		if !known && slices.ContainsFunc(family, func(s *model.Sample) bool { return gpuOf(s) == uuid }) && !strings.HasPrefix(name, "warpgauge_") {
			out[name] = true
		}
	}
	return out
}
