package main

import (
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

// whole reports whether a series is of a GPU as a whole.
func whole(m *dto.Metric) bool {
	for _, name := range further {
		if label(m, name) != "" {
			return false
		}
	}
	return true
}

// value is a GPU's reading on the page.
func (p *page) value(metric, uuid string) (float64, bool) {
	for _, m := range p.families[metric].GetMetric() {
		if label(m, "UUID") == uuid && whole(m) {
			return valueOf(m), true
		}
	}
	return 0, false
}

// text is a label of a GPU's series, where the field is of type label.
func (p *page) text(name, uuid string) (string, bool) {
	for _, f := range p.families {
		for _, m := range f.GetMetric() {
			if label(m, "UUID") != uuid {
				continue
			}
			if v := label(m, name); v != "" {
				return v, true
			}
		}
	}
	return "", false
}

// series counts the series of a GPU's families by name.
func (p *page) series(uuid string) map[string]int {
	out := make(map[string]int)
	for name, f := range p.families {
		for _, m := range f.GetMetric() {
			if label(m, "UUID") == uuid && strings.HasPrefix(name, "DCGM_") {
				out[name]++
			}
		}
	}
	return out
}

// total sums a family of the exporter's own metrics by one of its labels.
func (p *page) total(metric, by string) map[string]float64 {
	out := make(map[string]float64)
	for _, m := range p.families[metric].GetMetric() {
		out[label(m, by)] += valueOf(m)
	}
	return out
}
