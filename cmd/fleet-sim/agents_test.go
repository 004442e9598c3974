//go:build linux

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	rollouts "warpgauge/extensions/remote/fleet"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
	"warpgauge/pkg/file"
)

// The figures of docs/fleet.md:
//
//	go test ./cmd/fleet-sim -run TestMeasureAgents -measure-agents=10000 -v -timeout=1h
var (
	measureAgents = flag.Int("measure-agents", 0, "agents to measure the reference server with; 0: not")
	measureScheme = flag.String("measure-scheme", "http", "http or ws")
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
	reached          func(what string)
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
		if err := os.WriteFile(filepath.Join(r.directory, name), []byte(content), 0o600); err != nil {
			r.Fatal(err)
		}
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
		if err != nil {
			r.Fatal(err)
		}
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
	r.reached("after the first list")

	r.offer(simulatedSlow, "[{percent: 1, soak: 1s}, {percent: 100}]")
	r.await("a new list at the canaries, and the server killed", func(c agentCounts, _ rollouts.Fleet) bool { return c.Lists[sumOf(simulatedSlow)] >= canaries })
	r.kill()
	c, err := r.counts()
	if err != nil {
		r.Fatal(err)
	}
	if c.Lists[sumOf(simulatedSlow)]+c.Lists[sumOf(simulatedGood)] != all {
		r.Fatalf("without a server agents have %v", c.Lists)
	}
	r.kill = r.start()
	r.await("the server is back, the list at all agents", func(c agentCounts, f rollouts.Fleet) bool {
		return c.Lists[sumOf(simulatedSlow)] == all && f.Cohorts[0].Stable == sumOf(simulatedSlow)
	})
	r.reached("after the second list")
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
	if err != nil {
		r.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func newRolloutTest(t *testing.T, agents int, interval time.Duration, scheme string) *rolloutTest {
	t.Helper()
	r := &rolloutTest{T: t, agents: agents, interval: interval, directory: t.TempDir(), state: filepath.Join(t.TempDir(), "state"), patience: 10*interval + time.Minute}
	r.agentsAt, r.askAt = freeAddress(t), freeAddress(t)
	r.reached = func(string) {}
	args := []string{
		"--address=127.0.0.1:0", fmt.Sprintf("--agents=%d", agents), "--agents-server=" + scheme + "://" + r.agentsAt,
		"--agents-interval=" + interval.String(), "--agents-stall=" + stallField,
	}
	ctx, cancel := context.WithCancel(t.Context())
	var out programtest.Output
	ended := make(chan error, 1)
	go func() { ended <- command(ctx, args, &out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the agents ended with %v", err)
		}
		if r.kill != nil {
			r.kill()
		}
	})
	said := regexp.MustCompile(`on http://([^/]+)/agents`)
	eventually.OK(t, "the address", func() error {
		m := said.FindStringSubmatch(out.String())
		if m == nil {
			return fmt.Errorf("said %q", out.String())
		}
		r.countsAt = m[1]
		return nil
	})
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
				agents, err := s.Agents(nil)
				if err != nil {
					t.Fatal(err)
				}
				var wg sync.WaitGroup
				serve := func(address string, srv *http.Server, wrap func(net.Listener) net.Listener) {
					l, err := net.Listen("tcp", address)
					if err != nil {
						t.Fatal(err)
					}
					wg.Go(func() {
						_ = rollouts.Serve(ctx, wrap(l), srv, func(l net.Listener, srv *http.Server) error { return srv.Serve(l) })
					})
				}
				serve(r.agentsAt, agents, s.LimitAgents)
				serve(r.askAt, s.Operators(nil), func(l net.Listener) net.Listener { return l })
				wg.Go(func() { _ = s.Run(ctx) })
				return func() { cancel(); wg.Wait() }
			}
			r.rollout()
		})
	}
}

// TestMeasureAgents has it in a process of its own, which is killed.
func TestMeasureAgents(t *testing.T) {
	if *measureAgents == 0 {
		t.Skip("measures only with -measure-agents=N")
	}
	program := filepath.Join(t.TempDir(), "warpgauge-fleet")
	if out, err := exec.Command("go", "build", "-o", program, "warpgauge/cmd/warpgauge-fleet").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	before := live()
	r := newRolloutTest(t, *measureAgents, 30*time.Second, *measureScheme)
	var server *exec.Cmd
	r.start = func() func() {
		server = exec.Command(program, "serve", "--directory="+r.directory, "--state-directory="+r.state, "--agents-address="+r.agentsAt, "--address="+r.askAt, "--warmup=45s", "--log-level=warn")
		server.Stderr = os.Stderr
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		return func() {
			_ = server.Process.Kill()
			_ = server.Wait()
		}
	}
	r.reached = func(what string) {
		t.Helper()
		cpu, began := cpuOf(t, server.Process.Pid), time.Now()
		time.Sleep(time.Minute) // of ordinary polling
		used := cpuOf(t, server.Process.Pid) - cpu
		rss := rssOf(t, server.Process.Pid)
		t.Logf("RESULT | %s | server: RSS %.0f MiB, %.1f KiB per agent; %.2f %% of a core, %.0f µs per message | agents: %.1f KiB each of heap and stacks", what,
			rss/(1<<20), rss/1024/float64(r.agents), 100*used.Seconds()/time.Since(began).Seconds(),
			used.Seconds()*1e6/(float64(r.agents)*time.Since(began).Seconds()/r.interval.Seconds()), float64(live()-before)/1024/float64(r.agents))
	}
	r.rollout()
}

func rssOf(t *testing.T, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		t.Fatal("no VmRSS")
	}
	n, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n * 1024
}

func cpuOf(t *testing.T, pid int) (cpu time.Duration) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range strings.Fields(string(stat))[13:15] {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		cpu += time.Duration(n) * 10 * time.Millisecond
	}
	return cpu
}
