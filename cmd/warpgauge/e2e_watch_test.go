package main_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"warpgauge/internal/testkit/eventually"
)

// watcher scrapes pages in two formats and compares each with the previous one.
type watcher struct {
	checks []func(page) error
	client *http.Client
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex
	took  []time.Duration
	wrong []error
}

// watch starts to scrape: one scraper 100 times a second, or several ten times each. Each page must have status 200 and
// valid syntax, no duplicate series and no counter that goes back, and must pass the checks, which run concurrently.
func watch(t *testing.T, e *exporter, scrapers int, checks ...func(page) error) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watcher{checks: checks, client: newClient(t), cancel: cancel}
	w.client.Transport.(*http.Transport).MaxIdleConnsPerHost = scrapers
	interval := 10 * time.Millisecond
	if scrapers > 1 {
		interval *= 10
	}
	for n := range scrapers {
		w.done.Go(func() {
			tick, counts := time.NewTicker(interval), map[labels.Labels]float64{}
			defer tick.Stop()
			for i := n; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					w.scrape(e.url+"/metrics", [...]string{acceptText, acceptOpenMetrics}[i%2], counts)
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); w.done.Wait() })
	return w
}

func (w *watcher) scrape(url, accept string, counts map[labels.Labels]float64) {
	begin := time.Now()
	a, err := try(context.Background(), w.client, http.MethodGet, url, "Accept", accept)
	took := time.Since(begin)
	if err == nil && a.code != http.StatusOK {
		err = fmt.Errorf("status %d: %.200s", a.code, a.body)
	}
	if err == nil {
		err = w.page(a, counts)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took = append(w.took, took)
	if err != nil {
		w.wrong = append(w.wrong, fmt.Errorf("page %d: %w", len(w.took), err))
	}
}

// page checks a page and compares its counters with those before.
func (w *watcher) page(a answer, counts map[labels.Labels]float64) error {
	p, err := parse(a)
	if err != nil {
		return err
	}
	for _, s := range p {
		if s.typ != model.MetricTypeCounter && s.typ != model.MetricTypeHistogram || ofSession(s.name) {
			continue
		}
		if last, ok := counts[s.labels]; ok && !(s.value >= last) { // also true for NaN
			return fmt.Errorf("%s went back from %v to %v", s.labels, last, s.value)
		}
		counts[s.labels] = s.value
	}
	var errs []error
	for _, check := range w.checks {
		errs = append(errs, check(p))
	}
	return errors.Join(errs...)
}

// ofSession reports whether a series counts events of one session, so that it restarts at zero.
func ofSession(name string) bool {
	return slices.ContainsFunc([]string{"library_call", "sample_duration", "sample_errors", "missed_ticks", "implausible_values", "rescan_errors"}, func(family string) bool {
		return strings.HasPrefix(name, "warpgauge_"+family)
	})
}

// await waits for that many more pages.
func (w *watcher) await(t *testing.T, pages int) {
	t.Helper()
	taken := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.took)
	}
	for n := taken() + 1; pages > 0; n, pages = n+1, pages-1 {
		eventually.True(t, "a further page", func() bool { return taken() >= n })
	}
}

// stop ends the scrapes once there are enough for a meaningful result, and reports their errors.
func (w *watcher) stop(t *testing.T) {
	t.Helper()
	w.await(t, 20)
	w.cancel()
	w.done.Wait()
	w.client.CloseIdleConnections()
	for i, err := range w.wrong {
		if i == 5 {
			t.Errorf("and %d more of %d pages", len(w.wrong)-i, len(w.took))
			break
		}
		t.Error(err)
	}
	slices.Sort(w.took)
	at := func(q float64) time.Duration { return w.took[int(q*float64(len(w.took)-1))] }
	t.Logf("%d scrapes: p50 %v, p99 %v, slowest %v", len(w.took), at(0.5), at(0.99), at(1))
}

// othersAdvance scrapes until each of the seven other GPUs has had three more energy readings, a
// counter that grows with every sample.
func (e *exporter) othersAdvance(t *testing.T) {
	t.Helper()
	last, steps := map[string]float64{}, map[string]int{}
	e.await(t, "new values of the other GPUs", func(p page) error {
		now := p.values("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
		if len(now) != 7 {
			t.Fatalf("%d GPUs on the page while one hangs, want 7 on every page", len(now))
		}
		for gpu, v := range now {
			if v < last[gpu] {
				t.Fatalf("energy of GPU %s went back from %v to %v", gpu, last[gpu], v)
			}
			if v > last[gpu] {
				steps[gpu]++
			}
			last[gpu] = v
		}
		for gpu, n := range steps {
			if n < 4 { // the first is the initial value
				return fmt.Errorf("GPU %s had %d values", gpu, n)
			}
		}
		return nil
	})
}
