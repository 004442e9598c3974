package isolation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/eventually"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/sampler"
	"warpgauge/pkg/view"
)

const testBuild = "test build"

// TestMain lets the test binary be a child: its first argument says which.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "child" {
		os.Exit(beChild(os.Args[2])) //nolint:forbidigo // it is main now
	}
	m.Run()
}

// beChild is a child that behaves as its name says.
func beChild(name string) int {
	control := os.NewFile(ControlFD, "control")
	build := testBuild
	switch name {
	case "exit":
		fmt.Fprintln(os.Stderr, "no more today")
		return 3
	case "assert":
		fmt.Fprintln(os.Stderr, "x.cc:1: Assertion `n > 0' failed.")
		_ = syscall.Kill(os.Getpid(), syscall.SIGABRT)
		select {}
	case "mute":
		select {}
	case "junk":
		_, _ = control.Write(make([]byte, 64))
		select {}
	case "stranger":
		build = "another build"
	}
	err := Child(context.Background(), control, build, func(s Setup) (collector.Factory, error) {
		return func() collector.Collector { return &counting{mode: name, log: s.Logger, start: s.Start} }, nil
	})
	if err != nil {
		return 1
	}
	return 0
}

// counting is a collector of two devices whose cells count the samples.
type counting struct {
	mode  string
	log   *zap.Logger
	start time.Time
}

func (c *counting) Name() string { return "counting" }
func (c *counting) Close() error { return nil }

func (c *counting) Open(_ context.Context, fields field.List) ([]collector.Source, error) {
	switch c.mode {
	case "absent":
		return nil, fmt.Errorf("look for it: %w", collector.ErrNotLoaded)
	case "hang-open":
		select {}
	}
	c.log.Info("opened", zap.Int("fields", len(fields.Fields)), zap.Duration("took", time.Second))
	var out []collector.Source
	for i := range 2 {
		s := &counter{collector: c, devices: []collector.Device{{ID: fmt.Sprint("dev", i), Level: field.GPU, GPU: fmt.Sprint(i)}}}
		for _, r := range fields.Readings() {
			s.columns = append(s.columns, collector.Column{Field: r.Desc.ID})
		}
		out = append(out, s)
	}
	return out, nil
}

// outdatedMark names a file that the first process of a test makes when it says
// that it is outdated, so that the next ones do not.
const outdatedMark = "WARPGAUGE_TEST_OUTDATED_MARK"

func (s *counter) outdated() error {
	if s.old || s.n == 5 {
		f, err := os.OpenFile(os.Getenv(outdatedMark), os.O_CREATE|os.O_EXCL, 0o600)
		if s.old = s.old || err == nil; err == nil {
			err = f.Close()
		}
		if s.old {
			return errors.Join(collector.ErrOutdated, err)
		}
	}
	return nil
}

type counter struct {
	old       bool
	collector *counting
	devices   []collector.Device
	columns   []collector.Column
	n         int
	hoard     [][]byte
}

func (s *counter) Devices() []collector.Device { return s.devices }
func (s *counter) Columns() []collector.Column { return s.columns }

func (s *counter) Sample(row []float64, due []bool) error {
	s.n++
	switch s.collector.mode {
	case "hang-all":
		select {}
	case "outdated":
		if err := s.outdated(); err != nil {
			return err
		}
	case "lost-one":
		if s.devices[0].ID == "dev1" {
			return collector.ErrDeviceLost
		}
	case "leak":
		s.leak()
	case "leaking clock":
		s.leak()
		time.Sleep(rand.N(20 * time.Millisecond)) // a call that takes its time, now more, now less
		for i := range row {
			if due[i] {
				row[i] = float64(time.Since(s.collector.start).Microseconds())
			}
		}
		return nil
	}
	for i := range row {
		row[i] = float64(s.n)
	}
	return nil
}

func (s *counter) leak() {
	b := make([]byte, 4<<20)
	for i := range b {
		b[i] = 1
	}
	s.hoard = append(s.hoard, b)
}

func list(t *testing.T, names ...string) (l field.List) {
	t.Helper()
	for _, n := range names {
		d, scale, ok := field.ByName(n)
		if !ok {
			t.Fatalf("no field %q", n)
		}
		l.Fields = append(l.Fields, field.Field{Desc: d, Name: n, Scale: scale})
	}
	return l
}

// supervised is a running Supervisor.
type supervised struct {
	*Supervisor
	board  view.Board
	logs   *observer.ObservedLogs
	reg    *prometheus.Registry
	cancel context.CancelFunc
	done   chan error
}

func supervise(t *testing.T, mode string, o Options) *supervised {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	v := &supervised{logs: logs, reg: prometheus.NewRegistry(), done: make(chan error, 1)}
	o.Name, o.Build, o.Command = "counting", testBuild, []string{"counting", "child", mode}
	o.Publish = func(next *view.View) {
		v.board.Store(&view.View{Version: v.board.Load().Version + 1, Sources: next.Sources})
	}
	o.stopSlack = eventually.Patience
	o.Interval, o.Logger, o.Registerer = 10*time.Millisecond, zap.New(core), v.reg
	fields := list(t, "DCGM_FI_DEV_GPU_TEMP")
	if mode == "leaking clock" {
		fields = list(t, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_ECC_SBE_VOL_DEV") // the second is slow to read
	}
	v.Supervisor = New(fields, o)
	ctx, cancel := context.WithCancel(t.Context())
	v.cancel = cancel
	go func() { v.done <- v.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-v.done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	v.cancel = stop
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			for _, e := range logs.All() {
				t.Logf("%v %s %v", e.Level, e.Message, e.ContextMap())
			}
		}
	})
	return v
}

// freeze stops a process and waits until none of its threads runs any more: one
// that does when the signal is sent may still do what it is told after that.
func freeze(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "all threads to be stopped", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("no threads of %d: %v", pid, err)
		}
		return !slices.ContainsFunc(threads, func(path string) bool {
			raw, err := os.ReadFile(path)
			return err == nil && !bytes.HasPrefix(raw[bytes.LastIndexByte(raw, ')')+1:], []byte(" T"))
		})
	})
}

// rows returns the heads of the rings on the board.
func (v *supervised) rows() (heads []uint64) {
	for _, s := range v.board.Load().Sources {
		heads = append(heads, s.Ring.Head())
	}
	return heads
}

func (v *supervised) status() sampler.CollectorStatus { return v.Status()[0] }

// counted returns the restarts for a reason.
func (v *supervised) counted(reason string) uint64 {
	v.metrics.mu.Lock()
	defer v.metrics.mu.Unlock()
	return v.metrics.restarts[reason]
}

func latest(t *testing.T, r *ring.Ring) ring.Row {
	t.Helper()
	var row ring.Row
	if !r.Latest(&row) {
		t.Fatal("the ring is empty")
	}
	return row
}
