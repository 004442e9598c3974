package main_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"warpgauge/internal/testkit/eventually"
)

// Two lists that share their first three families. Each has one of its own, by
// which a page tells the list that it was made with.
const (
	sharedLines = "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\n" +
		"DCGM_FI_DEV_POWER_USAGE, gauge, Power.\n" +
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy.\n"
	listA = sharedLines + "DCGM_FI_DEV_SM_CLOCK, gauge, Clock.\n"
	listB = sharedLines + "DCGM_FI_DEV_MEM_CLOCK, gauge, Clock.\n"
)

var sharedFamilies = [...]string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"}

// testReload changes the list in every way there is while 50 clients scrape
// without pause. Every page must be whole: status 200 and the shared families
// of all eight GPUs.
func testReload(t *testing.T, exe string) {
	dir := newConfigMap(t, listA)
	path := filepath.Join(dir, "counters.csv")
	e := serve(t, exe, "--collect-interval=100", "--enable-reload-endpoint", "-f", path)
	e.awaitList(t, "DCGM_FI_DEV_SM_CLOCK")

	pages, stop := scrapeWithoutPause(t, e, 50)
	client := newClient(t)
	swap := func(list string) { swapConfigMap(t, dir, list) }
	replace := func(list string) { write(t, path, list) } // an ordinary file from here on
	hangup := func(list string) { write(t, path, list); e.Signal(t, syscall.SIGHUP) }
	post := func(list string) {
		write(t, path, list)
		if a := request(t, client, http.MethodPost, e.url+"/-/reload"); a.code != http.StatusOK {
			t.Errorf("POST /-/reload: status %d: %s", a.code, a.body)
		}
	}
	next := [...]struct{ list, marker string }{{listB, "DCGM_FI_DEV_MEM_CLOCK"}, {listA, "DCGM_FI_DEV_SM_CLOCK"}}
	ways := []func(list string){swap, swap, swap, replace, hangup, post, replace, hangup, post}
	for i, change := range ways {
		to := next[i%2]
		change(to.list)
		e.awaitList(t, to.marker)
	}
	eventually.OK(t, "enough scrapes to say anything", func() error {
		if n := pages.Load(); n < 50*10 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	stop()
	t.Logf("%d reloads during %d scrapes", len(ways), pages.Load())
	eventually.OK(t, "the successful reloads in the metrics", func() error {
		return e.scrape(t, acceptText).want(1, "warpgauge_config_last_reload_successful")
	})
}

// awaitList polls until the page has the family that marks a list.
func (e *exporter) awaitList(t *testing.T, marker string) {
	t.Helper()
	eventually.OK(t, "the list with "+marker, func() error {
		if n := len(e.scrape(t, acceptText).family(marker)); n != 8 {
			return fmt.Errorf("%d series of %s, want 8", n, marker)
		}
		return nil
	})
}

// testBadReload gives a list with an error: the old one stays, the metric and
// the log say so, and the next good list is taken.
func testBadReload(t *testing.T, exe string) {
	path := file(t, "counters.csv", listA)
	e := serve(t, exe, "--collect-interval=100", "--enable-reload-endpoint", "-f", path)
	e.awaitList(t, "DCGM_FI_DEV_SM_CLOCK")
	pages, stop := scrapeWithoutPause(t, e, 5)

	write(t, path, "DCGM_FI_DEV_GPU_TEMP, gauge, fine\nDCGM_FI_DEV_MEM_CLOCK, gouge, not fine\n")
	eventually.OK(t, "the failed reload in the metrics", func() error {
		return e.scrape(t, acceptText).want(0, "warpgauge_config_last_reload_successful")
	})
	a := request(t, newClient(t), http.MethodPost, e.url+"/-/reload")
	if a.code != http.StatusInternalServerError || !strings.Contains(string(a.body), "gouge") {
		t.Errorf("POST /-/reload of a bad file: status %d: %q; want 500 and what is wrong", a.code, a.body)
	}
	if log := e.Output(); !strings.Contains(log, "gouge") {
		t.Errorf("the log does not say what is wrong with the file:\n%s", log)
	}
	p := e.scrape(t, acceptText)
	if len(p.family("DCGM_FI_DEV_SM_CLOCK")) != 8 || len(p.family("DCGM_FI_DEV_MEM_CLOCK")) != 0 {
		t.Error("the old list is not in service any more")
	}
	write(t, path, listB)
	e.awaitList(t, "DCGM_FI_DEV_MEM_CLOCK")
	stop()
	t.Logf("%d scrapes meanwhile", pages.Load())
}

// scrapeWithoutPause starts clients that check each page, until stop is called.
func scrapeWithoutPause(t *testing.T, e *exporter, clients int) (pages *atomic.Int64, stop func()) {
	t.Helper()
	client := newClient(t)
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = clients
	ctx, cancel := context.WithCancel(t.Context())
	pages = new(atomic.Int64)
	var all sync.WaitGroup
	for n := range clients {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				accept := [...]string{acceptText, acceptOpenMetrics}[(n+i)%2]
				a, err := try(t.Context(), client, http.MethodGet, e.url+"/metrics", "Accept", accept)
				switch {
				case err == nil:
					err = a.wholePage()
				case t.Context().Err() != nil:
					return // the test has failed elsewhere and ends
				}
				if err != nil {
					t.Errorf("scrape %d of client %d: %v", i, n, err)
					return
				}
				pages.Add(1)
			}
		})
	}
	stop = func() { cancel(); all.Wait() }
	t.Cleanup(stop)
	return pages, stop
}

// wholePage checks a page cheaply, without parsing it.
func (a answer) wholePage() error {
	if a.code != http.StatusOK {
		return fmt.Errorf("status %d: %.200s", a.code, a.body)
	}
	for _, name := range sharedFamilies {
		if n := bytes.Count(a.body, []byte("\n"+name+"{")); n != 8 {
			return fmt.Errorf("%d series of %s on a page of %d bytes, want 8", n, name, len(a.body))
		}
	}
	return nil
}

func inParallel(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// newConfigMap lays a file out as the kubelet does for a ConfigMap volume:
// counters.csv -> ..data/counters.csv, ..data -> ..<time>.
func newConfigMap(t *testing.T, text string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	swapConfigMap(t, dir, text)
	must(t, os.Symlink(filepath.Join("..data", "counters.csv"), filepath.Join(dir, "counters.csv")))
	return dir
}

// swapConfigMap changes the text as the kubelet does: a new directory, a new
// link next to ..data, renamed over it, the old directory removed.
func swapConfigMap(t *testing.T, dir, text string) {
	t.Helper()
	data := filepath.Join(dir, "..data")
	old, _ := os.Readlink(data)
	fresh := filepath.Join(dir, fmt.Sprintf("..%d", time.Now().UnixNano()))
	link := data + "_tmp"
	for _, err := range []error{
		os.Mkdir(fresh, 0o700),
		os.WriteFile(filepath.Join(fresh, "counters.csv"), []byte(text), 0o600),
		os.Symlink(filepath.Base(fresh), link),
		os.Rename(link, data),
	} {
		must(t, err)
	}
	if old != "" {
		must(t, os.RemoveAll(filepath.Join(dir, old)))
	}
}
