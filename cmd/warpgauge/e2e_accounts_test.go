package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"syscall"
	"testing"
	"time"

	"warpgauge/extensions/accounts/report"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
)

// TestE2EAccounts: jobs of ten seconds on a GPU whose load changes have the energy that the board's counter has counted meanwhile, within
// 1 %, also when the exporter is killed and started again; then no series goes back.
func TestE2EAccounts(t *testing.T) {
	t.Parallel()
	exe, jobs, state := build(t), t.TempDir(), filepath.Join(t.TempDir(), "accounts")
	start := func() *exporter {
		return serve(t, exe, "--fake-devices=2", "--collect-interval=100", "--hpc-job-mapping-dir="+jobs, "--accounts", "--account-directory="+state)
	}
	e := start()
	counters := func() map[string]float64 {
		out := map[string]float64{}
		p := e.scrape(t, "")
		for _, name := range []string{"energy_joules", "gpu_seconds", "busy_seconds", "time_seconds", "tensor_seconds"} {
			for _, s := range p.family("warpgauge_owner_" + name + "_total") {
				out[fmt.Sprint(name, s.labels)] = s.value
			}
		}
		return out
	}
	id := e.await(t, "2 GPUs", count(2, "DCGM_FI_DEV_GPU_TEMP")).family("DCGM_FI_DEV_GPU_TEMP")[0].get("UUID")
	energy := map[int64]float64{} // by ms, J: what the board's counter says
	read := func() {
		var s apiv1.Samples
		a := get(t, newClient(t), e.url+"/api/v1/samples?device="+id+"&field=DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
		must(t, json.Unmarshal(a.body, &s))
		for i, at := range s.Series[0].Times {
			if v := s.Series[0].Values[i]; v != nil {
				energy[at] = *v / 1000
			}
		}
	}
	during := func(from, until time.Time) float64 {
		var times []int64
		for at := range energy {
			times = append(times, at)
		}
		sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
		at := func(when time.Time) float64 {
			i := max(1, sort.Search(len(times)-1, func(i int) bool { return times[i] >= when.UnixMilli() }))
			a, b := times[i-1], times[i]
			return energy[a] + (energy[b]-energy[a])*float64(when.UnixMilli()-a)/float64(b-a)
		}
		return at(until) - at(from)
	}
	e.await(t, "accounts", func(p page) error { _, err := p.one("warpgauge_owners_dropped_total"); return err })
	for i, kill := range []bool{false, true} {
		name := fmt.Sprint("job:", 100+i)
		path := filepath.Join(jobs, "0")
		must(t, os.WriteFile(path, []byte(name[4:]+"\n"), 0o644))
		from := time.Now()
		time.Sleep(5 * time.Second) // the job works
		if read(); kill {
			before := counters()
			e.Signal(t, syscall.SIGKILL)
			e.ExitCode(t)
			e = start()
			e.await(t, "accounts of before", func(page) error {
				after := counters()
				for name, v := range before {
					if after[name] < v {
						return fmt.Errorf("%s is %v, was %v", name, after[name], v)
					}
				}
				return nil
			})
		}
		time.Sleep(5 * time.Second) // the job works
		must(t, os.Remove(path))
		until := time.Now()
		var r report.Report
		e.await(t, "the report of "+name, func(page) error {
			a := get(t, newClient(t), e.url+"/api/v1/owners/"+name)
			r = report.Report{}
			if err := json.Unmarshal(a.body, &r); err != nil || a.code != http.StatusOK || r.Left == nil {
				return fmt.Errorf("%d %w %s", a.code, err, a.body)
			}
			return nil
		})
		read()
		want, seconds := during(from, until), until.Sub(from).Seconds()
		testkit.Between(t, name+": J", want*0.99, want*1.01, r.Total.Energy)
		testkit.Between(t, name+": seconds", seconds*0.99, seconds*1.01, r.Total.GPUSeconds)
		e.await(t, name+" on the page", func(p page) error {
			_, err := p.one("warpgauge_owner_gpu_seconds_total", "hpc_job", name[4:])
			return err
		})
	}
}
