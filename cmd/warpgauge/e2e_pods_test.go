package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"warpgauge/internal/testkit/eventually"
	kubelet "warpgauge/pkg/kube/kubetest"
)

// TestE2EPods runs the real binary next to a scripted kubelet. What the page says in
// each mode is in TestOwnersOnThePage.
func TestE2EPods(t *testing.T) {
	t.Parallel()
	exe := build(t)
	for name, test := range map[string]func(*testing.T, string){
		"Flapping": testFlapping,
		"Isolated": testOwnersIsolated,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, exe)
		})
	}
}

// podsCSV is short, since many scrapers read it.
const podsCSV = `DCGM_FI_DEV_GPU_UTIL, gauge, Utilisation.
DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.
DCGM_FI_DRIVER_VERSION, label, Driver
`

// withKubelet are the flags for a node whose kubelet is at socket, which is asked
// as often as can be.
func withKubelet(socket string, more ...string) []string {
	return append([]string{"-k", "--pod-resources-kubelet-socket=" + socket, "--pod-resources-interval=1s"}, more...)
}

// uuids are those of the node's GPUs, by index.
func (e *exporter) uuids(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	eventually.OK(t, "a page with 8 GPUs", func() error {
		p := e.scrape(t, acceptText)
		for _, s := range p.family("DCGM_FI_DEV_GPU_TEMP") {
			out[s.get("gpu")] = s.get("UUID")
		}
		return eightGPUs(p)
	})
	return out
}

// podOf wants the pod on each of these GPUs; "" is none.
func podOf(pods map[string]string) func(page) error {
	return func(p page) error {
		var errs []error
		for _, s := range p.family("DCGM_FI_DEV_GPU_TEMP") {
			if want, asked := pods[s.get("gpu")]; asked && s.get("pod") != want {
				errs = append(errs, fmt.Errorf("GPU %s is pod %q's, want %q", s.get("gpu"), s.get("pod"), want))
			}
		}
		return errors.Join(errs...)
	}
}

func pod(name string, uuids ...string) *v1.PodResources {
	return kubelet.Pod("ml", name, kubelet.Container("main", kubelet.Devices("nvidia.com/gpu", uuids...)))
}

// testFlapping lets 50 scrapers look at the page while the kubelet goes through
// everything that kubelets do, and reload the list meanwhile. No scrape may see
// another set of series, and the exporter must hold no more than before.
func testFlapping(t *testing.T, exe string) {
	path := file(t, "counters.csv", podsCSV)
	k := kubelet.Start(t)
	e := serve(t, exe, withKubelet(k.Socket(), "-f", path, "--collect-interval=200", "--slow-interval=200ms")...)
	gpus := e.uuids(t)
	pods := []*v1.PodResources{pod("train-0", gpus["0"], gpus["1"]), pod("train-1", gpus["2"]), pod("chat", gpus["5"])}
	k.Set(pods...)
	want := map[string]string{"0": "train-0", "1": "train-0", "2": "train-1", "3": "", "5": "chat"}
	eventually.OK(t, "the pods", func() error { return podOf(want)(e.scrape(t, acceptText)) })
	eventually.OK(t, "a healthy mapping", func() error {
		return e.scrape(t, acceptText).want(1, "warpgauge_mapping_up", "mapping", "pod_resources")
	})

	goroutines, descriptors := e.goroutines(t), e.descriptors(t)
	w := e.watchSeries(t, 50)
	w.measure(t, "with a kubelet that answers", func() { time.Sleep(1500 * time.Millisecond) }) // to compare with
	write(t, path, strings.Replace(podsCSV, "Temperature.", "Temperature in C.", 1))            // a reload: same series
	w.measure(t, "with a kubelet that flaps", func() { flap(k, pods) })
	w.stop(t)

	failures := 0.0
	eventually.OK(t, "a healthy mapping that has failed, and a reload", func() error {
		p := e.scrape(t, acceptText)
		errs := []error{podOf(want)(p), p.want(1, "warpgauge_mapping_up", "mapping", "pod_resources")}
		if n, err := p.one("warpgauge_config_reloads_total", "result", "success"); err != nil || n < 1 {
			errs = append(errs, fmt.Errorf("the list was not read again meanwhile: %v, %w", n, err))
		}
		failures = 0
		for _, s := range p.family("warpgauge_mapping_errors_total") {
			failures += s.value
		}
		if failures == 0 {
			errs = append(errs, errors.New("the kubelet has flapped, and no failure is counted"))
		}
		return errors.Join(errs...)
	})
	eventually.OK(t, "goroutines and descriptors as before", func() error {
		var errs []error
		if g := e.goroutines(t); g > goroutines+1 { // each look is a connection
			errs = append(errs, fmt.Errorf("%v goroutines, %v before", g, goroutines))
		}
		if d := e.descriptors(t); d > descriptors+1 {
			errs = append(errs, fmt.Errorf("%d descriptors, %d before", d, descriptors))
		}
		return errors.Join(errs...)
	})
	t.Logf("%d connections to the kubelet, %d lists, %v failures", k.Connections(), k.Calls(), failures)

	// Another node's worth of pods after one more restart: followed, not mixed.
	k.Restart(pod("other-0", gpus["0"]), pod("other-1", gpus["1"], gpus["2"]), pod("other-5", gpus["5"]))
	want = map[string]string{"0": "other-0", "1": "other-1", "2": "other-1", "3": "", "5": "other-5"}
	eventually.OK(t, "the other pods", func() error { return podOf(want)(e.scrape(t, acceptText)) })

	// An end while the kubelet owes an answer.
	k.On(kubelet.Silence())
	k.Await(1)
	e.Signal(t, os.Interrupt)
	if code := e.ExitCode(t); code != 0 || strings.Contains(e.Output(), "abandoning") {
		t.Errorf("exit code %d, want 0 and nothing abandoned", code)
	}
}

// flap puts the kubelet through 200 changes, quicker than it is asked, and then
// through failures that last until it was asked.
func flap(k *kubelet.Server, pods []*v1.PodResources) {
	failures := []func(){
		func() { k.On(kubelet.Fail(codes.Internal, "no")) },
		func() { k.On(kubelet.Say([]byte{0xff, 0xff})) },
		func() { k.On(kubelet.Fail(codes.ResourceExhausted, "rejected by rate limit")) },
		k.Kill,
	}
	steps := append([]func(){
		func() { k.Restart() }, // lists nothing yet
		func() { k.Set(pods...) },
		func() { k.On(kubelet.Silence()) },
		func() { k.Restart(pods[:1]...) },
		func() { k.On(nil) },
		func() { k.Restart(pods...) },
	}, failures...)
	for i := range 200 {
		steps[i%len(steps)]()
		time.Sleep(30 * time.Millisecond)
	}
	k.On(nil)
	k.Restart(pods...)
	for _, fail := range failures {
		fail()
		time.Sleep(1200 * time.Millisecond) // it is asked once a second
	}
	k.On(nil)
	k.Restart(pods...)
}

// seriesWatch compares the series of each page with those of the first.
type seriesWatch struct {
	client *http.Client
	want   map[string]bool
	end    chan struct{}
	done   sync.WaitGroup

	mu    sync.Mutex
	took  []time.Duration
	wrong error
}

// watchSeries starts scrapers, each of which scrapes ten times a second.
func (e *exporter) watchSeries(t *testing.T, scrapers int) *seriesWatch {
	t.Helper()
	client := newClient(t)
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = scrapers
	scrape := func() (map[string]bool, time.Duration, error) {
		begin := time.Now()
		a, err := try(t.Context(), client, http.MethodGet, e.url+"/metrics", "Accept", acceptText)
		if err == nil && a.code != http.StatusOK {
			err = fmt.Errorf("status %d: %.200s", a.code, a.body)
		}
		return devicesSeries(a.body), time.Since(begin), err
	}
	w := &seriesWatch{client: client, end: make(chan struct{})}
	var err error
	if w.want, _, err = scrape(); err != nil || len(w.want) != 16 {
		t.Fatalf("%d series, want 16: %v", len(w.want), err)
	}
	for range scrapers {
		w.done.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for {
				got, took, err := scrape()
				if err == nil && !maps.Equal(got, w.want) {
					err = errors.New("the page has other series (-before +now):\n" + cmp.Diff(w.want, got))
				}
				w.note(took, err)
				select {
				case <-w.end:
					return
				case <-tick.C:
				}
			}
		})
	}
	return w
}

// devicesSeries are names and labels of the devices' series.
func devicesSeries(body []byte) map[string]bool {
	out := map[string]bool{}
	for line := range bytes.Lines(body) {
		if bytes.HasPrefix(line, []byte("DCGM_")) {
			out[string(line[:bytes.LastIndexByte(line, ' ')])] = true
		}
	}
	return out
}

func (w *seriesWatch) note(took time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took = append(w.took, took)
	if w.wrong == nil {
		w.wrong = err
	}
}

// measure reports how long scrapes took while something was done.
func (w *seriesWatch) measure(t *testing.T, what string, do func()) {
	t.Helper()
	w.mu.Lock()
	w.took = nil
	w.mu.Unlock()
	do()
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.took)
	if len(w.took) == 0 {
		t.Fatalf("no scrape %s", what)
	}
	at := func(q float64) time.Duration { return w.took[int(q*float64(len(w.took)-1))] }
	t.Logf("%s: %d scrapes, p50 %v, p99 %v, slowest %v", what, len(w.took), at(0.5), at(0.99), at(1))
}

func (w *seriesWatch) stop(t *testing.T) {
	t.Helper()
	close(w.end)
	w.done.Wait()
	w.client.CloseIdleConnections()
	if w.wrong != nil {
		t.Error(w.wrong)
	}
}

// testOwnersIsolated looks for sockets of the kubelet in the process that samples:
// it must share none with the exporter and open none of its own.
func testOwnersIsolated(t *testing.T, exe string) {
	k := kubelet.Start(t)
	e := serve(t, exe, withKubelet(k.Socket(), "--isolation=process")...)
	gpus := e.uuids(t)
	k.Set(pod("train-0", gpus["0"]))
	eventually.OK(t, "the pod", func() error { return podOf(map[string]string{"0": "train-0", "1": ""})(e.scrape(t, acceptText)) })
	if n := k.Connections(); n != 1 {
		t.Errorf("%d connections to the kubelet, want 1", n)
	}
	child, ours := e.child(t), sockets(e.PID())
	if len(ours) == 0 {
		t.Error("the exporter has no sockets at all")
	}
	for _, s := range sockets(child) {
		if slices.Contains(ours, s) {
			t.Errorf("the child has a socket of the exporter: %s", s)
		}
	}
	// The kubelet goes away while the child is replaced: labels stay.
	k.Kill()
	kill(t, child, 9)
	eventually.OK(t, "the pod, on devices that another child has found", func() error {
		p := e.scrape(t, acceptText)
		return errors.Join(eightGPUs(p), p.upAgain(1, "signal"), podOf(map[string]string{"0": "train-0", "1": ""})(p))
	})
}

// sockets are those that a process has open, as /proc names them.
func sockets(pid int) (out []string) {
	for _, f := range openFiles(pid) {
		if strings.HasPrefix(f, "socket:") {
			out = append(out, f)
		}
	}
	return out
}

// withEnv is exe with variables, as a script that becomes it.
func withEnv(t *testing.T, exe string, variables ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "start")
	text := "#!/bin/sh\n"
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		text += fmt.Sprintf("export %s='%s'\n", name, value)
	}
	must(t, os.WriteFile(path, []byte(text+fmt.Sprintf("exec '%s' \"$@\"\n", exe)), 0o700))
	return path
}
