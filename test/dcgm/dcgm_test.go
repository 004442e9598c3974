//go:build linux && cgo

package dcgm_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/programtest"
)

// watch scrapes ten times a second until stop is called. stop returns the errors of seen.
func (e *exporter) watch(tb testing.TB, seen func(at time.Duration, p page) error) (stop func() []string) {
	tb.Helper()
	began, done := time.Now(), make(chan struct{})
	var objections []string
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			at := time.Since(began).Round(100 * time.Millisecond)
			if err := seen(at, e.scrape(tb)); err != nil {
				objections = append(objections, fmt.Sprintf("%v: %v", at, err))
			}
		}
	})
	stop = sync.OnceValue(func() []string {
		close(done)
		wg.Wait()
		return objections
	})
	tb.Cleanup(func() { stop() })
	return stop
}

// healthy returns a check that fails if a GPU lacks series, is stale, or has a verdict. It skips the GPUs in but.
func (n *node) healthy(want map[string][]string, but ...string) func(time.Duration, page) error {
	whole := n.whole(want, but...)
	return func(_ time.Duration, p page) error { return errors.Join(whole(p), judged(p, but...)) }
}

func failOn(t *testing.T, what string, objections []string) {
	t.Helper()
	if len(objections) > 0 {
		t.Errorf("%s: %d pages, first %s, last %s", what, len(objections), objections[0], objections[len(objections)-1])
	}
}

// lasts returns how long each list serves, and how often GPUs hang; both are smaller with -short.
func lasts() (list time.Duration, hangs int) {
	if testing.Short() {
		return 30 * time.Second, 2
	}
	return 5 * time.Minute, 20
}

// A healthy engine keeps its GPUs with each shipped list.
func TestListsStayWithDCGM(t *testing.T) {
	n := newNode(t, nvmltest.Config{Preset: "h100-sxm"})
	long, _ := lasts()
	for _, list := range []string{"default-counters.csv", "dcp-metrics-included.csv", "recommended-counters.csv"} {
		t.Run(list, func(t *testing.T) {
			e := n.serve(t, "-f", filepath.Join("..", "..", "etc", list))
			want := n.steady(t, e)
			stop := e.watch(t, n.healthy(want))
			time.Sleep(long)
			failOn(t, list, stop())
			p := e.scrape(t)
			if got := p.of("warpgauge_gpu_takeovers_total", "collector")["nvml"]; got != 0 || p.speaker() != "dcgm" {
				t.Errorf("NVML took over %v times, %s speaks", got, p.speaker())
			}
		})
	}
}

// A GPU that hangs or answers late costs no other GPU a value, and returns soon after it answers.
func TestHangs(t *testing.T) {
	n := newNode(t, nvmltest.Config{Preset: "h100-sxm"})
	e := n.serve(t)
	_, hangs := lasts()
	kinds := map[string]func(gpu int) (end func()){
		"hang": func(gpu int) func() { return n.Hang(gpu, nvmltest.Every) },
		"late": func(gpu int) func() { return n.Delay(gpu, nvmltest.Every, 200*time.Millisecond) },
	}
	for kind, begin := range kinds {
		t.Run(kind, func(t *testing.T) {
			var slowest, longest time.Duration
			for i := range hangs {
				want := n.steady(t, e)
				gpu := i % n.GPUs()
				name := strconv.Itoa(gpu)
				series := e.watch(t, func(_ time.Duration, p page) error { return missing(p, want, "") })
				verdicts := e.watch(t, func(_ time.Duration, p page) error { return judged(p, name) })
				began := time.Now()
				end := begin(gpu)
				old := e.watch(t, func(at time.Duration, p page) error {
					if n.whole(want, name)(p) != nil {
						slowest = max(slowest, at)
					}
					return nil
				})
				time.Sleep(12*time.Second - time.Since(began))
				old()
				end()
				longest = max(longest, e.await(t, "the GPU is back", n.whole(want)))
				e.await(t, "DCGM speaks again", func(p page) error {
					if s := p.speaker(); s != "dcgm" {
						return fmt.Errorf("%s speaks", s)
					}
					return n.whole(want)(p)
				})
				failOn(t, fmt.Sprintf("%s %d: GPUs lack series", kind, i), series())
				failOn(t, fmt.Sprintf("%s %d: verdicts on other GPUs", kind, i), verdicts())
			}
			t.Logf("%s: a page with young values of the others at most %v after the hang, the GPU back %v after its end", kind, slowest, longest.Round(100*time.Millisecond))
			if slowest > 5*time.Second || longest > 3*time.Second {
				t.Errorf("%s: want 5s and 3s", kind)
			}
		})
	}
}

// missing returns an error if a GPU lacks series, whatever their age. It skips the GPU but.
func missing(p page, want map[string][]string, but string) error {
	if lacks := p.lacks(want, but); len(lacks) > 0 {
		return fmt.Errorf("%d, such as %q, while %s speaks", len(lacks), lacks[:min(8, len(lacks))], p.speaker())
	}
	return nil
}

// judged returns an error if a GPU has a verdict, or is judged under a second name. It skips the GPUs in but.
func judged(p page, but ...string) error {
	for s := range p {
		if strings.HasPrefix(s, `warpgauge_device_health{`) && strings.HasPrefix(label(s, "device"), "nvml") {
			return fmt.Errorf("%s: a second name", s)
		}
	}
	for _, v := range p.verdicts() {
		if gpu, _, _ := strings.Cut(v, " "); !slices.Contains(but, gpu) {
			return fmt.Errorf("verdict %s", v)
		}
	}
	return nil
}

// GPUs that NVML reads stay on the page when an engine restarts with fewer or other GPUs.
func TestEngineComesBack(t *testing.T) {
	n := newNode(t, nvmltest.Config{Preset: "h100-sxm"})
	e := n.serve(t)
	want := n.steady(t, e)
	for _, hidden := range [][]int{nil, {6, 7}, {0}} {
		t.Run(fmt.Sprint("without ", hidden), func(t *testing.T) {
			n.killEngine()
			e.await(t, "NVML serves", func(p page) error {
				if s := p.speaker(); s != "nvml" || len(p.verdicts()) > 0 { // verdicts are gathered once a second
					return fmt.Errorf("%s speaks, %q", s, p.verdicts())
				}
				return n.whole(want)(p)
			})
			stop := e.watch(t, n.healthy(want))
			n.startEngineOn(hidden...)
			e.await(t, "DCGM speaks", func(p page) error {
				if s := p.speaker(); s != "dcgm" {
					return fmt.Errorf("%s speaks", s)
				}
				return nil
			})
			time.Sleep(80 * time.Second) // missing GPUs are reported after a minute
			failOn(t, "after the restart", stop())
		})
	}
}

// A reload, a child's end and an engine's end take no series away. The logged ages stand in docs/dcgm-and-nvml.md.
func TestInterruptions(t *testing.T) {
	n := newNode(t, nvmltest.Config{Preset: "h100-sxm"})
	e := n.serve(t)
	for _, c := range []struct {
		name      string
		interrupt func()
	}{
		{"reload", func() { e.Signal(t, syscall.SIGHUP) }},
		{"child killed", func() { e.killChildren(t) }},
		{"engine killed", n.killEngine},
	} {
		t.Run(c.name, func(t *testing.T) {
			var oldest float64
			for range 5 {
				want := n.steady(t, e)
				stop := e.watch(t, func(_ time.Duration, p page) error {
					_, age := p.oldest()
					if oldest = max(oldest, age); age > 1.5 { // no new row: a GPU may be unknown
						return missing(p, want, "")
					}
					return errors.Join(missing(p, want, ""), judged(p))
				})
				c.interrupt()
				time.Sleep(10 * time.Second)
				failOn(t, c.name, stop())
				select {
				case <-n.engine.Ended():
					n.startEngine(n.env)
				default:
				}
			}
			t.Logf("%s, five times: values at most %.1f s old", c.name, oldest)
		})
	}
}

// Two exporters and warpgauge once share one engine.
func TestTwoExporters(t *testing.T) {
	n := newNode(t, nvmltest.Config{Preset: "h100-sxm"})
	a, b := n.serve(t), n.serve(t, "--collect-interval=200")
	want := n.steady(t, a)
	stopA, stopB := a.watch(t, n.healthy(want)), b.watch(t, n.healthy(n.steady(t, b)))
	for range 5 {
		cmd := exec.CommandContext(t.Context(), n.binary(t), append([]string{"once"}, n.flags()[1:]...)...)
		cmd.Env = n.env
		if out, err := cmd.Output(); err != nil || strings.Count(string(out), "\nDCGM_FI_DEV_GPU_TEMP{") != n.GPUs() {
			t.Errorf("once: %v\n%s", err, out)
		}
	}
	failOn(t, "first", stopA())
	failOn(t, "second", stopB())
}

// The GPU Operator starts the image without arguments. If the image has DCGM, profiling works with an embedded engine and
// with the operator's.
func TestOperator(t *testing.T) {
	n := newNode(t, nvmltest.Config{Preset: "h100-sxm"})
	list := testkit.Get(filepath.Abs("../../etc/dcp-metrics-included.csv"))(t)
	for name, more := range map[string][]string{"embedded": nil, "dcgm.enabled": {"DCGM_REMOTE_HOSTENGINE_INFO=" + n.address}} {
		t.Run(name, func(t *testing.T) {
			env := append(slices.Concat(n.env, more), "DCGM_EXPORTER_LISTEN=127.0.0.1:0", "DCGM_EXPORTER_KUBERNETES=true", "DCGM_EXPORTER_COLLECTORS="+list, "NODE_NAME=worker-7", "WARPGAUGE_EXPORTER_METRICS=full",
				"WARPGAUGE_ENABLE_DCGM=true", "WARPGAUGE_ENABLE_NVML=true") // /dev has no GPUs here
			e := &exporter{Process: programtest.Start(t, n.binary(t), nil, programtest.Options{Env: env})}
			e.url = e.AwaitReady(t, "/health")
			e.await(t, "profiling", func(p page) error {
				if got := len(p.of("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gpu")); got != n.GPUs() || p.speaker() != "dcgm" {
					return fmt.Errorf("%d GPUs by %s", got, p.speaker())
				}
				return nil
			})
		})
	}
}

// No XID is lost over reloads, or the page names the GPU that may have lost one.
func TestXIDsOverReloads(t *testing.T) {
	for _, collector := range []string{"dcgm", "nvml"} {
		t.Run(collector, func(t *testing.T) {
			n := newNode(t, nvmltest.Config{Preset: "h100-sxm"})
			file := filepath.Join(t.TempDir(), "list.csv")
			write := func(more string) {
				t.Helper()
				testkit.Must(t, os.WriteFile(file, []byte("DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_EXP_XID_ERRORS_TOTAL, counter, x\n"+more), 0o600))
			}
			write("")
			e := n.serve(t, "-f", file, "--enable-only="+collector)
			n.steady(t, e)
			const xids, reloads = 24, 80
			for i := range reloads {
				write([]string{"DCGM_FI_DEV_POWER_USAGE, gauge, p\n", ""}[i%2])
				e.Signal(t, syscall.SIGHUP)
				if at := i / (reloads / xids); i%(reloads/xids) == 0 && at < xids {
					time.Sleep(time.Duration(at) * 200 * time.Millisecond / xids) // every distance from a reload
					n.XID(at%n.GPUs(), 31)
				}
				time.Sleep(110 * time.Millisecond)
			}
			e.await(t, "all XIDs", func(p page) error {
				got, by := 0.0, map[string]float64{}
				for s, v := range p {
					if strings.HasPrefix(s, "DCGM_EXP_XID_ERRORS_TOTAL{") {
						got += v
						by[label(s, "gpu")] += v
					}
				}
				if got != xids {
					return fmt.Errorf("%v of %d XIDs: %v", got, xids, by)
				}
				return nil
			})
		})
	}
}

// TestVerdicts: a fault has the same verdict through either collector and with any list. The log has the seconds.
func TestVerdicts(t *testing.T) {
	own := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(own, "minimal"), []byte("DCGM_FI_DEV_GPU_TEMP, gauge, t\n"), 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(own, "health"), []byte("DCGM_EXP_GPU_HEALTH_STATUS, gauge, h\n"), 0o600))
	for list, dir := range map[string]string{"default-counters.csv": "../../etc", "recommended-counters.csv": "../../etc", "minimal": own, "health": own} {
		for _, collector := range []string{"dcgm", "nvml"} {
			t.Run(collector+" "+list, func(t *testing.T) {
				n := newNode(t, nvmltest.Config{Preset: "h100-sxm", GPUs: 12})
				e := n.serve(t, "--enable-only="+collector, "-f", filepath.Join(dir, list))
				n.steady(t, e)
				xids := func(codes ...uint64) func(int) {
					return func(gpu int) {
						for _, code := range codes {
							n.XID(gpu, code)
						}
					}
				}
				set := func(key string, v float64) func(int) { return func(gpu int) { n.SetNumber(gpu, key, v) } }
				began, took, want := time.Now(), map[string]time.Duration{}, map[string]bool{}
				for gpu, c := range []struct {
					begin   func(gpu int)
					verdict string
				}{
					{xids(31, 43, 63, 94), "ok  none"},
					{xids(48), "failed xid_48 reset_gpu"},
					{xids(64), "failed xid_64 reset_gpu"},
					{xids(79), "failed xid_79 reboot"},
					{xids(95), "failed xid_95 reset_gpu"},
					{xids(145), "degraded xid_145 none"}, // without a kernel log line, the kind of error is unknown
					{xids(149), "degraded xid_149 none"},
					{set("remapped[3]", 1), "failed row_remap_failed replace"},
					{set("recovery.action", 1), "failed recovery_reset reset_gpu"},
					{func(gpu int) { n.XID(gpu, 154); n.SetNumber(gpu, "recovery.action", 2) }, "failed recovery_reboot reboot"},
					{set("nvlink.crc.flit", 400), "failed nvlink_crc_errors drain"}, // of each of 18 links, in a minute
					{set("margin", -2), "degraded temperature_limit none"},
				} {
					c.begin(gpu)
					want[fmt.Sprint(gpu, " ", c.verdict)] = true
				}
				check := func(but string, after time.Duration) func(p page) error {
					return func(p page) error {
						wrong := 0
						for s := range p {
							if strings.HasPrefix(s, "warpgauge_device_health{") && label(s, "gpu") != but {
								v := fmt.Sprintf("%s %s %s %s", label(s, "gpu"), label(s, "state"), label(s, "reason"), label(s, "action"))
								if took[v] == 0 {
									took[v] = time.Since(began).Round(100 * time.Millisecond)
								}
								if !want[v] {
									wrong++
								}
							}
						}
						if wrong > 0 || time.Since(began) < after { // GPU 0 stays ok
							return fmt.Errorf("%d are wrong, after %v", wrong, took)
						}
						return nil
					}
				}
				e.await(t, "the verdicts", check("11", 45*time.Second))
				e.await(t, "a hot GPU is read twice, a minute apart", check("11", 100*time.Second))
				e.await(t, "the verdict on it", check("", 0))
				t.Logf("%v", took)
			})
		}
	}
}

// MIG instances have values through the engine.
func TestMIG(t *testing.T) {
	n := newNode(t, nvmltest.Config{Preset: "a100-mig"})
	e := n.serve(t)
	e.await(t, "instances", func(p page) error {
		for s := range p {
			if p.speaker() == "dcgm" && strings.HasPrefix(s, "DCGM_FI_DEV_FB_USED{") && label(s, "GPU_I_ID") != "" {
				return nil
			}
		}
		return fmt.Errorf("no instance on a page of %s with %v", p.speaker(), p.series())
	})
}
