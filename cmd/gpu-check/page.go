package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// page is one answer of the exporter.
type page struct {
	families map[string]*dto.MetricFamily
	took     time.Duration
}

// scrape fetches a page.
func scrape(ctx context.Context, url string) (*page, error) {
	start := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	p, err := readPage(resp.Body)
	if e := resp.Body.Close(); err == nil {
		err = e
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", url, resp.Status)
	}
	if err != nil {
		return nil, err
	}
	p.took = time.Since(start)
	return p, nil
}

func readPage(r io.Reader) (*page, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, fmt.Errorf("read the exporter's page: %w", err)
	}
	return &page{families: families}, nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	default:
		return m.Untyped.GetValue()
	}
}

// further are the labels that make several series of one field and GPU.
var further = []string{"GPU_I_ID", "nvlink", "xid", "clock_event", "health_watch", "peer_gpu"}

// part is a GPU, or one of its instances or links.
type part struct {
	uuid   string // of the GPU
	of     scope
	number string // of the instance or link
}

// has reports whether a series is of the part, and of nothing smaller.
func (p part) has(m *dto.Metric) bool {
	if gpuOf(m) != p.uuid || label(m, "GPU_CI_ID") != "" {
		return false
	}
	for _, name := range further {
		want := ""
		if name == p.of.label() {
			want = p.number
		}
		if label(m, name) != want {
			return false
		}
	}
	return true
}

// gpuOf is the UUID of a series' GPU. Series of links call it otherwise.
func gpuOf(m *dto.Metric) string { return cmp.Or(label(m, "UUID"), label(m, "gpu_uuid")) }

// value is a GPU's reading on the page.
func (p *page) value(metric, uuid string) (float64, bool) {
	return p.valueOf(metric, part{uuid: uuid}, [2]string{})
}

// valueOf is a part's reading, of the series with a label.
func (p *page) valueOf(metric string, of part, with [2]string) (float64, bool) {
	for _, m := range p.families[metric].GetMetric() {
		if of.has(m) && (with[0] == "" || label(m, with[0]) == with[1]) {
			return valueOf(m), true
		}
	}
	return 0, false
}

// text is a label of a part's series, where the field is of type label.
func (p *page) text(name string, of part) (string, bool) {
	for _, f := range p.families {
		for _, m := range f.GetMetric() {
			if gpuOf(m) != of.uuid || label(m, instance.label()) != "" && of.of == board || of.of != board && label(m, of.of.label()) != of.number {
				continue
			}
			if v := label(m, name); v != "" {
				return v, true
			}
		}
	}
	return "", false
}

// health is the worst result of a watch of a GPU.
func (p *page) health(watch, uuid string) (float64, bool) {
	worst, found := 0.0, false
	for _, m := range p.families["DCGM_EXP_GPU_HEALTH_STATUS"].GetMetric() {
		if gpuOf(m) == uuid && label(m, "health_watch") == watch {
			worst, found = max(worst, valueOf(m)), true
		}
	}
	return worst, found
}

// series counts the series of a GPU's families by name, of its links and instances too.
func (p *page) series(uuid string) map[string]int {
	out := make(map[string]int)
	for name, f := range p.families {
		for _, m := range f.GetMetric() {
			if gpuOf(m) == uuid && (strings.HasPrefix(name, "DCGM_") || strings.HasPrefix(name, "nvidia_")) {
				out[name]++
			}
		}
	}
	return out
}

// partsOf are the series of a family that belong to parts of a scope.
func (p *page) partsOf(metric, uuid string, of scope) int {
	n := 0
	for _, m := range p.families[metric].GetMetric() {
		if gpuOf(m) == uuid && label(m, of.label()) != "" {
			n++
		}
	}
	return n
}

// total sums a family of the exporter's own metrics by one of its labels.
func (p *page) total(metric, by string) map[string]float64 {
	out := make(map[string]float64)
	for _, m := range p.families[metric].GetMetric() {
		out[label(m, by)] += valueOf(m)
	}
	return out
}
