package main_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"warpgauge/internal/testkit/eventually"
)

// What Prometheus sends as Accept for each format.
const (
	acceptText        = "text/plain;version=0.0.4"
	acceptOpenMetrics = "application/openmetrics-text;version=1.0.0"
	acceptProtobuf    = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)

// sample is one series of a page.
type sample struct {
	labels labels.Labels
	value  float64
	native bool // a native histogram; value is its count
}

func (s sample) name() string            { return s.labels.Get(model.MetricNameLabel) }
func (s sample) get(label string) string { return s.labels.Get(label) }

// page is what Prometheus' own parser makes of an answer.
type page struct {
	types   map[string]model.MetricType
	samples []sample
}

// family returns the series with that name.
func (p page) family(name string) []sample {
	var out []sample
	for _, s := range p.samples {
		if s.name() == name {
			out = append(out, s)
		}
	}
	return out
}

// values returns the family's values by the label gpu.
func (p page) values(name string) map[string]float64 {
	out := map[string]float64{}
	for _, s := range p.family(name) {
		out[s.get("gpu")] = s.value
	}
	return out
}

// one returns the value of the only series with that name and these labels
// (name, value, name, value …).
func (p page) one(name string, pairs ...string) (float64, error) {
	var found []float64
	for _, s := range p.family(name) {
		if hasLabels(s, pairs) {
			found = append(found, s.value)
		}
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("%s%q: %d series, want 1", name, pairs, len(found))
	}
	return found[0], nil
}

// want is one, and an error if the value is another.
func (p page) want(value float64, name string, pairs ...string) error {
	v, err := p.one(name, pairs...)
	if err == nil && v != value {
		err = fmt.Errorf("%s%q is %v, want %v", name, pairs, v, value)
	}
	return err
}

func hasLabels(s sample, pairs []string) bool {
	for i := 0; i < len(pairs); i += 2 {
		if s.get(pairs[i]) != pairs[i+1] {
			return false
		}
	}
	return true
}

// bySeries returns value by label set, for the families that keep accepts.
func (p page) bySeries(keep func(name string) bool) map[string]float64 {
	out := map[string]float64{}
	for _, s := range p.samples {
		if keep(s.name()) {
			out[s.labels.String()] = s.value
		}
	}
	return out
}

// answer is an HTTP response whose body has been read.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (a answer) contentType() string { return a.header.Get("Content-Type") }

// get sends one request. header holds names and values in turn.
func get(t *testing.T, client *http.Client, url string, header ...string) answer {
	t.Helper()
	return request(t, client, http.MethodGet, url, header...)
}

func request(t *testing.T, client *http.Client, method, url string, header ...string) answer {
	t.Helper()
	a, err := try(t.Context(), client, method, url, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return a
}

// try is request for goroutines and for servers that may not be there.
func try(ctx context.Context, client *http.Client, method, url string, header ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, body}, err
}

// newClient returns a client whose connections end with the test.
func newClient(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: eventually.Patience}
}

// scrape gets a page in a format and parses it.
func (e *exporter) scrape(t *testing.T, accept string) page {
	t.Helper()
	client := newClient(t)
	defer client.CloseIdleConnections()
	a := get(t, client, e.url+"/metrics", "Accept", accept)
	if a.code != http.StatusOK {
		t.Fatalf("GET /metrics: status %d\n%s", a.code, a.body)
	}
	return parse(t, a.body, a.contentType())
}

// parse fails the test if Prometheus' own parser does not take the page.
func parse(t *testing.T, body []byte, contentType string) page {
	t.Helper()
	p, err := textparse.New(body, contentType, nil, textparse.ParserOptions{KeepClassicOnClassicAndNativeHistograms: true})
	if err != nil {
		t.Fatalf("parse page of type %q: %v", contentType, err)
	}
	out := page{types: map[string]model.MetricType{}}
	seen := map[string]bool{}
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("parse page of type %q: %v", contentType, err)
		}
		switch entry {
		case textparse.EntryType:
			name, typ := p.Type()
			if _, twice := out.types[string(name)]; twice {
				t.Errorf("%s has two TYPE lines in %q", name, contentType)
			}
			out.types[string(name)] = typ
		case textparse.EntrySeries, textparse.EntryHistogram:
			s := sample{native: entry == textparse.EntryHistogram}
			p.Labels(&s.labels)
			if s.native {
				_, _, h, fh := p.Histogram()
				if h != nil {
					s.value = float64(h.Count)
				} else {
					s.value = fh.Count
				}
			} else {
				_, _, s.value = p.Series()
			}
			if key := s.labels.String(); seen[key] {
				t.Errorf("%s appears twice in %q", key, contentType)
			} else {
				seen[key] = true
			}
			out.samples = append(out.samples, s)
		}
	}
}

func isDCGM(name string) bool { return strings.HasPrefix(name, "DCGM_") }
