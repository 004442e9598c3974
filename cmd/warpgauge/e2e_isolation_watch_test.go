package main_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"warpgauge/internal/testkit/eventually"
)

// watcher is a scraper that takes 100 pages a second, in two formats in turns,
// and holds each against the one before.
type watcher struct {
	check  func(page map[string]float64) error
	junk   string // the name of a counter of the library that may hold anything
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	took   []time.Duration
	wrong  []error
	counts map[string]float64 // counters and histograms of every page so far
}

// watch begins to scrape. Each page must be answered with 200, be taken by
// Prometheus' parser, hold no series twice, have no counter that goes back, and
// satisfy check.
func watch(t *testing.T, e *exporter, check func(page map[string]float64) error) *watcher {
	t.Helper()
	return (&watcher{check: check}).start(t, e)
}

func (w *watcher) start(t *testing.T, e *exporter) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w.cancel, w.counts = cancel, map[string]float64{}
	client := newClient(t)
	w.done.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				w.scrape(client, e.url+"/metrics", [...]string{acceptText, acceptOpenMetrics}[i%2])
			}
		}
	})
	t.Cleanup(func() { cancel(); w.done.Wait() })
	return w
}

func (w *watcher) scrape(client *http.Client, url, accept string) {
	begin := time.Now()
	a, err := try(context.Background(), client, http.MethodGet, url, "Accept", accept)
	took := time.Since(begin)
	if err == nil && a.code != http.StatusOK {
		err = fmt.Errorf("status %d: %.200s", a.code, a.body)
	}
	if err == nil {
		err = w.page(a)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took = append(w.took, took)
	if err != nil {
		w.wrong = append(w.wrong, fmt.Errorf("page %d: %w", len(w.took), err))
	}
}

// page parses a page and compares its counters with those before.
func (w *watcher) page(a answer) error {
	p, err := textparse.New(a.body, a.contentType(), labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return err
	}
	now := map[string]float64{}
	var typ model.MetricType
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("parse: %w", err)
		}
		switch entry {
		case textparse.EntryType:
			_, typ = p.Type()
		case textparse.EntrySeries:
			series, _, v := p.Series()
			key := string(series)
			if _, twice := now[key]; twice {
				return fmt.Errorf("%s appears twice", key)
			}
			now[key] = v
			if typ != model.MetricTypeCounter && typ != model.MetricTypeHistogram {
				continue
			}
			if w.junk != "" && strings.HasPrefix(key, w.junk) {
				continue
			}
			if ofSession(key) {
				continue
			}
			if last, ok := w.counts[key]; ok && !(v >= last) { // NaN is wrong, too
				return fmt.Errorf("%s went back from %v to %v", key, last, v)
			}
			w.counts[key] = v
		}
	}
	return w.check(now)
}

// ofSession reports whether a series counts what one session does: it starts at zero
// with the next one.
func ofSession(key string) bool {
	for _, family := range []string{"library_call", "sample_duration", "sample_errors", "missed_ticks", "implausible_values", "rescan_errors"} {
		if strings.HasPrefix(key, "warpgauge_"+family) {
			return true
		}
	}
	return false
}

// await waits for so many pages more, for each with the patience that there is.
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

// stop ends the scrapes, when there were enough to say anything, and reports what
// was wrong. It returns how many pages there were.
func (w *watcher) stop(t *testing.T) int {
	t.Helper()
	w.await(t, 20)
	w.cancel()
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
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
	return len(w.took)
}

// anything accepts a page whatever it holds.
func anything(map[string]float64) error { return nil }

// eightOnPage wants a temperature of each of the 8 GPUs.
func eightOnPage(page map[string]float64) error {
	n := 0
	for series := range page {
		if strings.HasPrefix(series, "DCGM_FI_DEV_GPU_TEMP{") {
			n++
		}
	}
	if n != 8 {
		return fmt.Errorf("%d GPUs have a temperature, want 8", n)
	}
	return nil
}
