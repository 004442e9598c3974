package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
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
	defer func() { _ = resp.Body.Close() }() // it was only read
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

// further are the labels that make several series of one field and GPU.
var further = []string{"GPU_I_ID", "nvlink", "xid", "clock_event", "health_watch", "peer_gpu"}

// part is a GPU, or one of its instances or links.
type part struct {
	uuid   string // of the GPU
	of     scope
	number string // of the instance or link
}

// has reports whether a series is of the part, and of nothing smaller.
func (p part) has(s *model.Sample) bool {
	if gpuOf(s) != p.uuid || label(s, "GPU_CI_ID") != "" {
		return false
	}
	for _, name := range further {
		want := ""
		if name == p.of.label() {
			want = p.number
		}
		if label(s, name) != want {
			return false
		}
	}
	return true
}

// gpuOf is the UUID of a series' GPU. Series of links call it otherwise.
func gpuOf(s *model.Sample) string { return cmp.Or(label(s, "UUID"), label(s, "gpu_uuid")) }

// value is a GPU's reading on the page.
func (p page) value(metric, uuid string) (float64, bool) {
	return p.valueOf(metric, part{uuid: uuid}, [2]string{})
}

// valueOf is a part's reading, of the series with a label.
func (p page) valueOf(metric string, of part, with [2]string) (float64, bool) {
	for _, s := range p[metric] {
		if of.has(s) && (with[0] == "" || label(s, with[0]) == with[1]) {
			return float64(s.Value), true
		}
	}
	return 0, false
}

// text is a label of a part's series, where the field is of type label.
func (p page) text(name string, of part) (string, bool) {
	for _, family := range p {
		for _, s := range family {
			if gpuOf(s) != of.uuid || label(s, instance.label()) != "" && of.of == board || of.of != board && label(s, of.of.label()) != of.number {
				continue
			}
			if v := label(s, name); v != "" {
				return v, true
			}
		}
	}
	return "", false
}

// health is the worst result of a watch of a GPU.
func (p page) health(watch, uuid string) (worst float64, found bool) {
	for _, s := range p[healthMetric] {
		if gpuOf(s) == uuid && label(s, "health_watch") == watch {
			worst, found = max(worst, float64(s.Value)), true
		}
	}
	return worst, found
}

// series counts the series of a GPU's families by name, of its links and instances too.
func (p page) series(uuid string) map[string]int {
	out := make(map[string]int)
	for name, family := range p {
		for _, s := range family {
			if gpuOf(s) == uuid && (strings.HasPrefix(name, "DCGM_") || strings.HasPrefix(name, "nvidia_")) {
				out[name]++
			}
		}
	}
	return out
}

// partsOf counts the series of a family that belong to parts of a scope.
func (p page) partsOf(metric, uuid string, of scope) (n int) {
	for _, s := range p[metric] {
		if gpuOf(s) == uuid && label(s, of.label()) != "" {
			n++
		}
	}
	return n
}

// total sums a family of the exporter's own metrics by one of its labels; without a label, under "".
func (p page) total(metric, by string) map[string]float64 {
	out := make(map[string]float64)
	for _, s := range p[metric] {
		out[label(s, by)] += float64(s.Value)
	}
	return out
}
