package main_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
)

// Prometheus' Accept header for each format.
const (
	acceptText        = "text/plain;version=0.0.4"
	acceptOpenMetrics = "application/openmetrics-text;version=1.0.0"
	acceptProtobuf    = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)

// sample is one series of a page. The value of a native histogram is its count. name lacks the suffix _total that
// DCGM's counters have in OpenMetrics.
type sample struct {
	name   string
	typ    model.MetricType
	labels labels.Labels
	value  float64
}

func (s *sample) get(label string) string { return s.labels.Get(label) }

// page is an answer parsed by Prometheus' own parser.
type page []sample

// family returns the series with that name.
func (p page) family(name string) []sample {
	var out []sample
	for _, s := range p {
		if s.name == name {
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

// one returns the value of the only series with that name and these labels (name, value, name, value …).
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

// want checks the value that one returns.
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

// gpus checks that exactly these GPUs have temperatures.
func gpus(names ...string) func(page) error {
	return func(p page) error {
		if got := slices.Sorted(maps.Keys(p.values("DCGM_FI_DEV_GPU_TEMP"))); !slices.Equal(got, names) {
			return fmt.Errorf("GPUs %v have a temperature, want %v", got, names)
		}
		return nil
	}
}

var (
	allGPUs   = []string{"0", "1", "2", "3", "4", "5", "6", "7"}
	eightGPUs = gpus(allGPUs...)
	otherGPUs = gpus("0", "1", "2", "4", "5", "6", "7") // all except hungGPU
)

// answer is an HTTP response whose body has been read.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (a answer) contentType() string { return a.header.Get("Content-Type") }

// want checks the status of the answer to what.
func (a answer) want(t *testing.T, what string, code int) {
	t.Helper()
	testkit.Equal(t, fmt.Sprintf("%s: status of %.300q", what, a.body), code, a.code)
}

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

// post sends a request that must succeed, and returns the answer.
func (e *exporter) post(t *testing.T, path string) string {
	t.Helper()
	a := request(t, newClient(t), http.MethodPost, e.url+path)
	if a.code != http.StatusOK {
		t.Fatalf("POST %s: %d %s", path, a.code, a.body)
	}
	return strings.TrimSpace(string(a.body))
}

// try is request for goroutines, and for servers that may be down.
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
	p := testkit.Get(parse(a))(t)
	return p
}

// await waits for a page that passes all checks.
func (e *exporter) await(t *testing.T, what string, checks ...func(page) error) (p page) {
	t.Helper()
	eventually.OK(t, what, func() error {
		p = e.scrape(t, acceptText)
		var errs []error
		for _, check := range checks {
			errs = append(errs, check(p))
		}
		return errors.Join(errs...)
	})
	return p
}

// is checks the value of the only series with that name and these labels.
func is(value float64, name string, pairs ...string) func(page) error {
	return func(p page) error { return p.want(value, name, pairs...) }
}

// count checks the number of a family's series.
func count(n int, name string) func(page) error {
	return func(p page) error {
		if got := len(p.family(name)); got != n {
			return fmt.Errorf("%d series of %s, want %d", got, name, n)
		}
		return nil
	}
}

// parse returns an error if Prometheus' parser rejects the page, or if a series appears twice.
func parse(a answer) (out page, err error) {
	p, err := textparse.New(a.body, a.contentType(), nil, textparse.ParserOptions{KeepClassicOnClassicAndNativeHistograms: true})
	if err != nil {
		return nil, fmt.Errorf("parse page of type %q: %w", a.contentType(), err)
	}
	types, seen := map[string]bool{}, map[labels.Labels]bool{}
	var typ model.MetricType
	for {
		s := sample{typ: typ}
		entry, err := p.Next()
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("parse page of type %q: %w", a.contentType(), err)
		case entry == textparse.EntryType:
			var name []byte
			name, typ = p.Type()
			if types[string(name)] {
				return nil, fmt.Errorf("%s has two TYPE lines in %q", name, a.contentType())
			}
			types[string(name)] = true
			continue
		case entry == textparse.EntrySeries:
			_, _, s.value = p.Series()
		case entry == textparse.EntryHistogram:
			if _, _, h, fh := p.Histogram(); h != nil {
				s.value = float64(h.Count)
			} else {
				s.value = fh.Count
			}
		default:
			continue
		}
		p.Labels(&s.labels)
		if seen[s.labels] {
			return nil, fmt.Errorf("%s appears twice in %q", s.labels, a.contentType())
		}
		seen[s.labels] = true
		if s.name = s.get(model.MetricNameLabel); isDCGM(s.name) {
			s.name = strings.TrimSuffix(s.name, "_total")
		}
		out = append(out, s)
	}
}

func isDCGM(name string) bool { return strings.HasPrefix(name, "DCGM_") }
