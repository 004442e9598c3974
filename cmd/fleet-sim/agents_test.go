//go:build linux

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	rollouts "warpgauge/extensions/remote/fleet"
	"warpgauge/pkg/file"
)

// rolloutTest is a server, its directory, and a process of agents.
type rolloutTest struct {
	*testing.T
	agents           int
	interval         time.Duration
	directory, state string
	agentsAt, askAt  string // addresses of the server
	countsAt         string // of the agents' counts
	patience         time.Duration
	start            func() (kill func())
	kill             func()
}

const (
	simulatedGood  = "DCGM_FI_DEV_GPU_TEMP, gauge, temperature\n"
	simulatedSlow  = "DCGM_FI_DEV_GPU_TEMP, gauge, temperature\nDCGM_FI_DEV_POWER_USAGE, gauge, power\n"
	simulatedStall = "DCGM_FI_DEV_GPU_TEMP, gauge, temperature\nDCGM_FI_PROF_SM_ACTIVE, gauge, activity\n"
	stallField     = "DCGM_FI_PROF_SM_ACTIVE"
)

func sumOf(list string) string {
	sum := sha256.Sum256([]byte(list))
	return hex.EncodeToString(sum[:])
}

// offer writes a list and the stages by which it comes.
func (r *rolloutTest) offer(list, stages string) {
	r.Helper()
	text := fmt.Sprintf("version: 1\ncohorts:\n- name: all\n  list: list.csv\n  rollout:\n    stages: %s\n", stages)
	for name, content := range map[string]string{"list.csv": list, "fleet.yaml": text} {
		must(r.T, os.WriteFile(filepath.Join(r.directory, name), []byte(content), 0o600))
	}
}

func (r *rolloutTest) counts() (c agentCounts, err error) {
	err = ask("http://"+r.countsAt+"/agents", &c)
	return c, err
}

func (r *rolloutTest) fleet() (f rollouts.Fleet, err error) {
	err = ask("http://"+r.askAt+"/api/v1/fleet", &f)
	if err == nil && (len(f.Cohorts) == 0 || f.Cohorts[0].Rollout == nil) {
		err = fmt.Errorf("no rollout yet: %+v", f)
	}
	return f, err
}

func ask(url string, answer any) error {
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(answer)
}

// await waits until as many agents as want says have each list.
func (r *rolloutTest) await(what string, is func(c agentCounts, f rollouts.Fleet) bool) {
	r.Helper()
	began := time.Now()
	for {
		c, err := r.counts()
		must(r.T, err)
		f, err := r.fleet()
		if err == nil && is(c, f) {
			r.Logf("RESULT | %s | %.1f s", what, time.Since(began).Seconds())
			return
		}
		if time.Since(began) > r.patience {
			text, _ := json.Marshal(f)
			r.Fatalf("not within %v: %s: %+v, %s, %v", r.patience, what, c, text, err)
		}
		time.Sleep(100 * time.Millisecond) // between two looks at other processes
	}
}

// rollout is what the issue asks to be shown: a list for all, one during which the server is killed, and one
// that stalls GPUs.
func (r *rolloutTest) rollout() {
	all := r.agents
	canaries := max(1, all/100)
	r.offer(simulatedGood, "[{percent: 100}]")
	r.kill = r.start()
	r.await("the first list at all agents", func(c agentCounts, f rollouts.Fleet) bool {
		return c.Lists[sumOf(simulatedGood)] == all && f.Cohorts[0].Stable == sumOf(simulatedGood)
	})

	r.offer(simulatedSlow, "[{percent: 1, soak: 1s}, {percent: 100}]")
	r.await("a new list at the canaries, and the server killed", func(c agentCounts, _ rollouts.Fleet) bool { return c.Lists[sumOf(simulatedSlow)] >= canaries })
	r.kill()
	c, err := r.counts()
	must(r.T, err)
	if c.Lists[sumOf(simulatedSlow)]+c.Lists[sumOf(simulatedGood)] != all {
		r.Fatalf("without a server agents have %v", c.Lists)
	}
	r.kill = r.start()
	r.await("the server is back, the list at all agents", func(c agentCounts, f rollouts.Fleet) bool {
		return c.Lists[sumOf(simulatedSlow)] == all && f.Cohorts[0].Stable == sumOf(simulatedSlow)
	})
	if c, err = r.counts(); err != nil || c.Changes != int64(2*all) {
		r.Fatalf("%d changes of %d agents, want each of two lists once; %v", c.Changes, all, err)
	}

	r.offer(simulatedStall, "[{percent: 1, soak: 10m}, {percent: 100}]")
	r.await("a list that stalls GPUs at the canaries", func(c agentCounts, _ rollouts.Fleet) bool { return c.Stalled > 0 })
	r.await("it is stopped by itself", func(_ agentCounts, f rollouts.Fleet) bool { return f.Cohorts[0].Rollout.State == rollouts.Stopped })
	r.await("the canaries are back", func(c agentCounts, _ rollouts.Fleet) bool {
		return c.Lists[sumOf(simulatedSlow)] == all && c.Stalled == 0
	})
	f, err := r.fleet()
	must(r.T, err)
	if why := f.Cohorts[0].Rollout.Reason; !strings.Contains(why, "stalled_devices: 8, before 0") {
		r.Errorf("stopped because %q", why)
	}
	c, err = r.counts()
	if touched := (c.Changes - int64(2*all)) / 2; err != nil || touched < 1 || touched > int64(canaries) {
		r.Errorf("%d agents had the list, at most %d may; %v", touched, canaries, err)
	}
	r.Logf("RESULT | agents that had the harmful list | %d of %d", (c.Changes-int64(2*all))/2, all)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

func newRolloutTest(t *testing.T, agents int, interval time.Duration, scheme string) *rolloutTest {
	t.Helper()
	r := &rolloutTest{T: t, agents: agents, interval: interval, directory: t.TempDir(), state: filepath.Join(t.TempDir(), "state"), patience: 10*interval + time.Minute}
	r.agentsAt, r.askAt = freeAddress(t), freeAddress(t)
	t.Cleanup(func() { // after the agents
		if r.kill != nil {
			r.kill()
		}
	})
	r.countsAt = simulate(t, fmt.Sprintf("--agents=%d", agents), "--agents-server="+scheme+"://"+r.agentsAt, "--agents-interval="+interval.String(), "--agents-stall="+stallField)
	return r
}

// TestAgentsRollout has the reference server in this process.
func TestAgentsRollout(t *testing.T) {
	for scheme, agents := range map[string]int{"http": 200, "ws": 50} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			r := newRolloutTest(t, agents, time.Second, scheme)
			r.start = func() func() {
				ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
				registry := prometheus.NewRegistry()
				s := rollouts.New(rollouts.Options{
					Directory: r.directory, ReloadInterval: 200 * time.Millisecond, State: file.Private{Path: r.state, Of: "the state"}, MaxAgents: 1000,
					Warmup: time.Second, Registry: registry, Log: zap.NewNop(),
				})
				endpoint := func(address string) *rollouts.Endpoint {
					l, err := net.Listen("tcp", address)
					must(t, err)
					return &rollouts.Endpoint{Listener: l, Serve: func(l net.Listener, srv *http.Server) error { return srv.Serve(l) }}
				}
				agents, operators := endpoint(r.agentsAt), endpoint(r.askAt)
				ended := make(chan struct{})
				go func() { _ = s.Run(ctx, agents, operators); close(ended) }()
				return func() { cancel(); <-ended }
			}
			r.rollout()
		})
	}
}
