package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"warpgauge/internal/testkit/eventually"
)

// TestE2ESlurmHealth: a real Slurm calls our HealthCheckProgram, which drains the node when
// a simulated GPU is lost.
func TestE2ESlurmHealth(t *testing.T) {
	t.Parallel()
	requireSlurm(t)
	exe, dir := build(t), t.TempDir()
	check, err := filepath.Abs("../../deploy/slurm/warpgauge-health")
	must(t, err)
	lost := filepath.Join(dir, "lost")
	spec := filepath.Join(dir, "spec.yaml")
	write(t, spec, "faults:\n  - {device: 2, kind: lost, while: "+lost+"}\n")
	s := startSlurm(t, dir, filepath.Join(dir, "jobs"), check)
	s.set(t, "WARPGAUGE_PROGRAM="+exe)
	s.awaitChecks(t)
	s.wantNode(t, "no exporter is there", "IDLE", "")

	// start starts an exporter in Slurm's network.
	start := func() *exporter {
		t.Helper()
		e := &exporter{Process: launch(t, "nsenter", "--target", s.pid, "--net", "--", exe, "--address=127.0.0.1:0", "--fake-spec="+spec,
			"--enable-only=fake", "--collect-interval=100", "--health-directory=")}
		e.awaitAddress(t)
		s.set(t, "WARPGAUGE_HEALTH_FLAGS=--url="+e.url)
		return e
	}
	// health waits until the exporter says that of the node.
	health := func(e *exporter, code int) {
		t.Helper()
		eventually.OK(t, fmt.Sprintf("warpgauge health to end with %d", code), func() error {
			text, err := s.try(t, exe, "health", "--url="+e.url)
			got := 0
			var ended *exec.ExitError
			if errors.As(err, &ended) {
				got = ended.ExitCode()
			}
			if got != code {
				return fmt.Errorf("%d: %s", got, text)
			}
			return nil
		})
	}
	e := start()
	health(e, 0)
	s.awaitChecks(t)
	s.wantNode(t, "all GPUs are healthy", "IDLE", "")

	write(t, lost, "")
	s.awaitNode(t, "IDLE+DRAIN")
	const reason = "warpgauge: GPU 2 lost: reboot"
	s.wantNode(t, "a GPU is lost", "IDLE+DRAIN", reason)
	before := s.node(t)
	s.awaitChecks(t)
	if after := s.node(t); after.Reason != before.Reason {
		t.Errorf("drained a second time: %q, before %q", after.Reason, before.Reason)
	}

	s.run(t, "scontrol", "update", "NodeName=node1", "State=RESUME")
	s.awaitNode(t, "IDLE+DRAIN") // the GPU is still lost
	s.wantNode(t, "resumed too early", "IDLE+DRAIN", reason)

	e.Signal(t, syscall.SIGTERM)
	e.ExitCode(t)
	s.awaitChecks(t)
	s.wantNode(t, "the exporter is gone", "IDLE+DRAIN", reason)
	must(t, os.Remove(lost))
	e = start() // after the node was repaired
	health(e, 0)
	s.awaitChecks(t)
	s.wantNode(t, "the fault is over: nothing resumes the node", "IDLE+DRAIN", reason)
	s.run(t, "scontrol", "update", "NodeName=node1", "State=RESUME")
	s.awaitChecks(t)
	s.wantNode(t, "resumed by hand", "IDLE", "")

	s.run(t, "scontrol", "update", "NodeName=node1", "State=DRAIN", "Reason=new firmware")
	write(t, lost, "")
	health(e, 1)
	s.awaitChecks(t)
	s.wantNode(t, "drained by an operator before", "IDLE+DRAIN", "new firmware")
}

// awaitChecks waits until two checks have begun and ended.
func (s *slurm) awaitChecks(t *testing.T) {
	t.Helper()
	lines := func() int {
		text, err := os.ReadFile(filepath.Join(s.dir, "checks"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Count(string(text), "\n")
	}
	begin := lines() // one may be under way: the second to end from now has begun later
	eventually.OK(t, "Slurm to check the node's health", func() error {
		if n := lines(); n < begin+2 {
			return fmt.Errorf("%d checks, %d before", n, begin)
		}
		return nil
	})
}

// slurmNode is what Slurm knows of the node.
type slurmNode struct{ State, Reason string }

var (
	nodeState  = regexp.MustCompile(` State=(\S+)`)
	nodeReason = regexp.MustCompile(` Reason=(.*)$`)
)

func (s *slurm) node(t *testing.T) (n slurmNode) {
	t.Helper()
	text := s.run(t, "scontrol", "--oneliner", "show", "node", "node1")
	if m := nodeState.FindStringSubmatch(text); m != nil {
		n.State = m[1]
	}
	if m := nodeReason.FindStringSubmatch(text); m != nil {
		n.Reason = m[1]
	}
	return n
}

func (s *slurm) awaitNode(t *testing.T, state string) {
	t.Helper()
	eventually.OK(t, "the node to be "+state, func() error {
		if n := s.node(t); n.State != state {
			return fmt.Errorf("it is %+v", n)
		}
		return nil
	})
}

// wantNode checks the state, and the reason but for who gave it when.
func (s *slurm) wantNode(t *testing.T, when, state, reason string) {
	t.Helper()
	n := s.node(t)
	got, _, _ := strings.Cut(n.Reason, " [")
	if n.State != state || got != reason {
		t.Errorf("%s: the node is %+v, want %s, %q", when, n, state, reason)
	}
}
