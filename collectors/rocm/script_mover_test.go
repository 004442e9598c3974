//go:build linux && cgo

package rocm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"warpgauge/internal/testkit/eventually"
)

// mover is the process that moves the values of the script's tree.
type mover struct {
	t   *testing.T
	pid int
}

// stopMover stops the values.
func stopMover(t *testing.T) *mover {
	t.Helper()
	pid, err := strconv.Atoi(os.Getenv("FAKE_AMD_MOVER"))
	if err != nil {
		t.Fatal(err)
	}
	m := &mover{t, pid}
	t.Cleanup(func() { m.signal(syscall.SIGCONT) }) // it ends with this process
	m.stop()
	return m
}

// step lets the values move once or more.
func (m *mover) step() {
	m.t.Helper()
	before := blobs(m.t)
	m.signal(syscall.SIGCONT)
	eventually.True(m.t, "other values", func() bool { return !bytes.Equal(before, blobs(m.t)) })
	m.stop()
}

func (m *mover) signal(s syscall.Signal) {
	m.t.Helper()
	if err := syscall.Kill(m.pid, s); err != nil {
		m.t.Fatal(err)
	}
}

// stop returns when no thread of it can write any more.
func (m *mover) stop() {
	m.t.Helper()
	m.signal(syscall.SIGSTOP)
	eventually.OK(m.t, "a stopped process", func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", m.pid))
		if err != nil || len(threads) == 0 {
			return errors.Join(err, errors.New("no threads"))
		}
		for _, f := range threads {
			text, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			// pid (comm) state …; T is stopped (proc_pid_stat(5))
			if _, state, _ := strings.Cut(string(text), ") "); !strings.HasPrefix(state, "T") {
				return fmt.Errorf("%s: %s", f, text)
			}
		}
		return nil
	})
}

// blobs are the gpu_metrics of all GPUs, which have the driver's clock in them.
func blobs(t *testing.T) (all []byte) {
	t.Helper()
	files, err := filepath.Glob("/sys/class/drm/card*/device/gpu_metrics")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}
