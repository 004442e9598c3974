package exporter

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

func testDumper(t *testing.T, o config.Dump) *dumper {
	t.Helper()
	desc, _, ok := field.ByName("DCGM_FI_DEV_GPU_TEMP")
	if !ok {
		t.Fatal("no field")
	}
	s := &view.Source{
		Collector: "fake", Devices: []collector.Device{{ID: "GPU-a", UUID: "GPU-a", GPU: "0", Level: field.GPU}},
		Columns: []collector.Column{{Field: desc.ID}, {Field: desc.ID, Labels: []collector.Label{{Name: "sensor", Value: "x"}}}},
		Ring:    ring.Make(2, 1, 2),
	}
	s.Ring.Append(1, []int64{1}, []float64{41, math.NaN()})
	var board view.Board
	board.Store(&view.View{Version: 1, Sources: []*view.Source{s}})
	status := []session.CollectorStatus{{Name: "fake", Up: true, Devices: []session.DeviceStatus{{Device: s.Devices[0], State: session.Lost, Cause: session.CauseLost, Reason: "gone"}}}}
	return &dumper{
		o: o, version: "v1", board: &board, now: time.Now, log: zap.NewNop(),
		status: func() []session.CollectorStatus { return status },
	}
}

func readDump(t *testing.T, name string) dumped {
	t.Helper()
	f, err := os.Open(name)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	var r io.Reader = f
	if strings.HasSuffix(name, ".gz") {
		r, err = gzip.NewReader(f)
		must(t, err)
	}
	var d dumped
	must(t, json.NewDecoder(r).Decode(&d))
	return d
}

func TestDump(t *testing.T) {
	for _, compressed := range []bool{false, true} {
		d := testDumper(t, config.Dump{Directory: filepath.Join(t.TempDir(), "not", "there"), Compression: compressed})
		name, err := d.write()
		must(t, err)
		if got := strings.HasSuffix(name, ".json.gz"); got != compressed {
			t.Errorf("%q, compressed: %v", name, compressed)
		}
		got := readDump(t, name)
		values := got.Sources[0].Values
		if got.Version != "v1" || got.Collectors[0].Devices[0].State != "lost" || got.Collectors[0].Devices[0].Reason != "gone" ||
			len(values) != 2 || values[0].Field != "DCGM_FI_DEV_GPU_TEMP" || *values[0].Value != 41 || values[1].Value != nil || values[1].Labels[0].Value != "x" {
			t.Errorf("dump %+v", got)
		}
		files, err := os.ReadDir(d.o.Directory)
		must(t, err)
		if len(files) != 1 || filepath.Join(d.o.Directory, files[0].Name()) != name {
			t.Errorf("files %v, want %q only", files, name)
		}
		for path, want := range map[string]os.FileMode{d.o.Directory: os.ModeDir | 0o700, name: 0o600} {
			if info, err := os.Stat(path); err != nil || info.Mode() != want {
				t.Errorf("mode of %q is %v, %v; want %v", path, info.Mode(), err, want)
			}
		}
		if other, err := d.write(); err != nil || other == name {
			t.Errorf("a second dump is %q, %v; want another name than %q", other, err, name)
		}
	}
	d := testDumper(t, config.Dump{Directory: "/proc/nowhere"})
	if _, err := d.write(); err == nil {
		t.Error("no error for a directory that cannot be made")
	}
}

// privateDir returns a directory for dumps, with any umask.
func privateDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	return dir
}

func TestOldDumpsGo(t *testing.T) {
	dir := privateDir(t)
	d := testDumper(t, config.Dump{Directory: dir, RetentionHours: 1})
	long := time.Now().Add(-2 * time.Hour)
	for _, name := range []string{dumpPrefix + "old.json", dumpPrefix + "new.json", "other.json"} {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		if !strings.Contains(name, "new") {
			must(t, os.Chtimes(filepath.Join(dir, name), long, long))
		}
	}
	must(t, d.clean())
	files, err := os.ReadDir(dir)
	must(t, err)
	if len(files) != 2 || files[0].Name() != "other.json" || files[1].Name() != dumpPrefix+"new.json" {
		t.Errorf("left: %v, want the new one and another's", files)
	}
	d.o.RetentionHours = 0
	must(t, os.Chtimes(filepath.Join(dir, dumpPrefix+"new.json"), long, long))
	must(t, d.clean())
	if files, _ := os.ReadDir(dir); len(files) != 2 {
		t.Errorf("0 hours keep for ever, left: %v", files)
	}
}

// A dump follows each change, and an hour without changes.
func TestDumpsFollowChanges(t *testing.T) {
	dir := privateDir(t)
	synctest.Test(t, func(t *testing.T) {
		d := testDumper(t, config.Dump{Directory: dir})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.run(ctx) }()
		f := func(wait time.Duration, want int) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			if files, _ := os.ReadDir(dir); len(files) != want {
				t.Errorf("%d files after %v more, want %d", len(files), wait, want)
			}
		}
		f(15*time.Second, 1)
		f(30*time.Minute, 1)
		v := *d.board.Load()
		v.Version++
		d.board.Store(&v)
		f(15*time.Second, 2)
		f(61*time.Minute, 3)
		cancel()
		must(t, <-done)
	})
}
