package main_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"warpgauge/extensions/accounts/report"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	kubelet "warpgauge/pkg/kube/kubetest"
	"warpgauge/pkg/kube/kubetest/apitest"
)

const accountsCSV = "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, e\nDCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, a\nDCGM_FI_PROF_PIPE_TENSOR_ACTIVE, gauge, a\n"

// joules holds what the energy counter of a board has said, J by ms.
type joules map[int64]float64

// read adds the samples that the exporter has.
func (j joules) read(t *testing.T, e *exporter, board string) {
	t.Helper()
	var s apiv1.Samples
	must(t, json.Unmarshal(get(t, newClient(t), e.url+"/api/v1/samples?device="+board+"&field=DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION").body, &s))
	for i, at := range s.Series[0].Times {
		if v := s.Series[0].Values[i]; v != nil {
			j[at] = *v / 1000
		}
	}
}

// at returns the counter at a time between two samples.
func (j joules) at(when time.Time) float64 {
	times := slices.Sorted(maps.Keys(j))
	i, _ := slices.BinarySearch(times, when.UnixMilli())
	i = min(max(i, 1), len(times)-1)
	a, b := times[i-1], times[i]
	return j[a] + (j[b]-j[a])*float64(when.UnixMilli()-a)/float64(b-a)
}

// ended waits for the report of an owner that has left.
func (e *exporter) ended(t *testing.T, id string) (r report.Report) {
	t.Helper()
	eventually.OK(t, "the report of "+id, func() error {
		a := get(t, newClient(t), e.url+"/api/v1/owners/"+id)
		r = report.Report{}
		if err := json.Unmarshal(a.body, &r); err != nil || a.code != http.StatusOK || r.Left == nil {
			return fmt.Errorf("%d %w %s", a.code, err, a.body)
		}
		return nil
	})
	return r
}

// TestE2EAccounts: jobs of ten seconds on a GPU whose load changes have the energy that the board's counter has counted meanwhile, within
// 1 %, also when the exporter is killed and started again, or the list is reloaded and the child killed. No series goes back.
func TestE2EAccounts(t *testing.T) {
	t.Parallel()
	exe, list, jobs, state := build(t), file(t, "list.csv", accountsCSV), t.TempDir(), filepath.Join(t.TempDir(), "accounts")
	start := func(more ...string) *exporter {
		return serve(t, exe, append(more, "-f", list, "--fake-devices=2", "--collect-interval=100", "--hpc-job-mapping-dir="+jobs, "--accounts", "--account-directory="+state)...)
	}
	e := start()
	shown := map[string]float64{}
	forward := func(p page) error {
		now := map[string]float64{}
		for _, s := range p {
			if s.get("owner") != "" && strings.HasSuffix(s.name, "_total") {
				now[fmt.Sprint(s.name, s.labels)] = s.value
			}
		}
		for name, v := range shown {
			if w, there := now[name]; !there {
				return fmt.Errorf("%s is not there", name)
			} else if w < v {
				t.Errorf("%s is %v, was %v", name, w, v)
			}
		}
		shown = now
		return nil
	}
	energy, id := joules{}, e.await(t, "2 GPUs and accounts", count(2, "DCGM_FI_DEV_GPU_TEMP"), count(1, "warpgauge_owners_dropped_total")).family("DCGM_FI_DEV_GPU_TEMP")[0].get("UUID")
	for i, disturb := range []func(){
		func() {},
		func() {
			e.Signal(t, syscall.SIGKILL)
			e.ExitCode(t)
			e = start("--isolation=process")
		},
		func() {
			write(t, list, accountsCSV+"DCGM_FI_DEV_GPU_UTIL, gauge, u\n")
			e.Signal(t, syscall.SIGHUP)
			e.await(t, "another list", count(2, "DCGM_FI_DEV_GPU_UTIL"), forward)
			energy.read(t, e, id)
			must(t, syscall.Kill(e.child(t), syscall.SIGKILL))
			e.await(t, "another child", is(1, "warpgauge_collector_child_up", "collector", "fake"), is(1, "warpgauge_collector_child_ends_total", "reason", "signal"), forward)
		},
	} {
		name := fmt.Sprint(100 + i)
		path := filepath.Join(jobs, "0")
		must(t, os.WriteFile(path, []byte(name+"\n"), 0o644))
		from := time.Now()
		time.Sleep(5 * time.Second) // the job works
		energy.read(t, e, id)
		e.await(t, "accounts", forward)
		disturb()
		e.await(t, "accounts of before", forward)
		time.Sleep(5 * time.Second) // the job works
		must(t, os.Remove(path))
		until := time.Now()
		r := e.ended(t, "job:"+name)
		energy.read(t, e, id)
		want, seconds := energy.at(until)-energy.at(from), until.Sub(from).Seconds()
		t.Logf("job %s: %.1f J in %.2f s, by the counter %.1f J in %.2f s", name, r.Total.Energy, r.Total.GPUSeconds, want, seconds)
		testkit.Between(t, name+": J", want*0.99, want*1.01, r.Total.Energy)
		testkit.Between(t, name+": seconds", seconds*0.99, seconds*1.01, r.Total.GPUSeconds)
		e.await(t, name+" on the page", forward, is(r.Total.GPUSeconds, "warpgauge_owner_gpu_seconds_total", "hpc_job", name))
	}
}

// TestE2EAccountsOfPods: pods on whole boards, on a shared one and on MIG instances have what their boards have counted, all together
// exactly, and have held them as long as the kubelet has said.
func TestE2EAccountsOfPods(t *testing.T) {
	t.Parallel()
	groups := controlGroups(t)
	spec := file(t, "spec.yaml", fmt.Sprintf("profile: dgx-a100-mig\nprocesses:\n- {device: 4, pid: %d, memory: 1000, busy: 30}\n- {device: 4, pid: %d, memory: 1000, busy: 20.5}\n",
		container(t, groups, uidTrain, "a"), container(t, groups, uidChat, "b")))
	uids := map[string]string{"short": "1", "long": "2", "train": uidTrain, "chat": uidChat, "mig-0": "3", "mig-1": "4"}
	k, api := kubelet.Start(t), apitest.Start(t, "node-1")
	for name, uid := range uids {
		api.Pods(apitest.Pod("ml", name, uid, nil))
	}
	e := serveBy(t, []string{"env", "KUBECONFIG=" + api.Kubeconfig(), "NODE_NAME=node-1", build(t)}, withKubelet(k.Socket(),
		"--kubernetes-virtual-gpus", "--kubernetes-enable-pod-uid", "--fake-spec="+spec, "--collect-interval=100", "--accounts", "--account-pod-events")...)
	gpu := e.uuids(t)
	sums := func(p page) map[string]float64 {
		out := map[string]float64{}
		for _, s := range p.family("warpgauge_owner_energy_joules_total") {
			out[s.get("UUID")] += s.value
		}
		return out
	}
	// set sets the pods, and returns the times between which the exporter has noticed it.
	set := func(pods ...*v1.PodResources) (span [2]time.Time) {
		span[0] = time.Now()
		k.Set(pods...)
		e.await(t, "users", count(len(pods), "warpgauge_device_owner"))
		span[1] = time.Now()
		return span
	}
	var before map[string]float64
	eventually.True(t, "accounts of 8 boards", func() bool { before = sums(e.scrape(t, acceptText)); return len(before) == 8 })
	others := []*v1.PodResources{pod("long", gpu["5"]), pod("train", gpu["4"]+"::0"), pod("chat", gpu["4"]+"::1"), pod("mig-0", "MIG-"+gpu["0"]+"/1/0"), pod("mig-1", "MIG-"+gpu["0"]+"/5/0")}
	came := set(append(others, pod("short", gpu["6"]))...)
	time.Sleep(5 * time.Second) // the short pod works
	left := set(others...)
	time.Sleep(10 * time.Second) // the others work
	end := set()
	used := map[string]report.Use{}
	for name, uid := range uids {
		used[name] = e.ended(t, "pod:ml:"+name+":"+uid).Total
		t.Logf("%s: %.2f s, %.1f J, by method %v", name, used[name].GPUSeconds, used[name].Energy, used[name].Methods)
	}
	for name, gone := range map[string][2]time.Time{"short": left, "long": end} {
		testkit.Between(t, name+": seconds", gone[0].Sub(came[1]).Seconds(), gone[1].Sub(came[0]).Seconds(), used[name].GPUSeconds)
	}
	testkit.Between(t, "seconds of those that share", end[0].Sub(came[1]).Seconds(), end[1].Sub(came[0]).Seconds(), used["train"].GPUSeconds+used["chat"].GPUSeconds)
	for name, may := range map[string][]string{"short": {"whole"}, "long": {"whole"}, "train": {"activity", "equal"}, "chat": {"activity", "equal"}, "mig-0": {"activity", "slices"}, "mig-1": {"activity", "slices"}} {
		others := slices.DeleteFunc(slices.Collect(maps.Keys(used[name].Methods)), func(method string) bool { return slices.Contains(may, method) })
		testkit.ErrorIf(t, used[name].Methods[may[0]] <= 0 || len(others) > 0, "%s has %v", name, used[name].Methods)
	}
	testkit.Between(t, "energy of those that share", 30/20.5*0.9999, 30/20.5*1.0001, used["train"].Methods["activity"]/used["chat"].Methods["activity"])
	eventually.True(t, "an attempt to write an event for each pod", func() bool { return api.Requests("/api/v1/namespaces/ml/events") == len(uids) })
	for board, grown := range sums(e.scrape(t, acceptText)) {
		grown -= before[board]
		j, off := joules{}, math.Inf(1)
		j.read(t, e, board)
		for from, a := range j {
			for until, b := range j {
				if from < came[0].UnixMilli() && until > left[1].UnixMilli() && math.Abs(b-a-grown) < math.Abs(off) {
					off = b - a - grown
				}
			}
		}
		t.Logf("board %s: all owners %.6f J, %+.6f J more than its counter between two rows", board, grown, -off)
		testkit.Between(t, board+": J more than all its owners", -1e-3, 1e-3, off)
	}
}
