package health

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/events"
	"warpgauge/pkg/session"
)

// remembered returns the file of a node with a condition of each kind of end.
func remembered(t *testing.T) ([]byte, *node) {
	t.Helper()
	n := newNode(t, 2, Options{BootID: "boot-1", Scope: "all"}, remapPending, energy)
	n.rows[0][1], n.rows[1][1] = 1e9, 1e9
	n.tick(time.Second)
	n.Observe(Observation{Reason: "xid", Code: 48, Device: "GPU-a", Source: "nvml", Text: "NVRM: Xid 48"})
	n.Observe(Observation{Reason: "xid", Code: 145, Device: "GPU-b"})
	n.tick(time.Second)
	data := testkit.Get(json.Marshal(n.content()))(t)
	return data, n
}

// TestTruncatedAtEveryByte: a truncated file is not used at all.
func TestTruncatedAtEveryByte(t *testing.T) {
	data, n := remembered(t)
	for i := range data {
		n.restart(Options{BootID: "boot-1", Scope: "all"})
		if err := n.restore(data[:i]); err == nil {
			t.Fatalf("the first %d of %d bytes are taken for a file", i, len(data))
		}
		if len(n.devices) > 0 {
			t.Fatalf("of the first %d of %d bytes %d devices are taken", i, len(data), len(n.devices))
		}
	}
	n.restart(Options{BootID: "boot-1", Scope: "all"})
	if err := n.restore(data); err != nil || len(n.devices) != 2 {
		t.Errorf("the whole file: %v, %d devices", err, len(n.devices))
	}
}

func FuzzRestore(f *testing.F) {
	f.Add([]byte(`{"version":1,"devices":[{"device":{"ID":"GPU-a"},"conditions":[{"reason":"xid_48"}]}]}`))
	f.Add([]byte(`{"version":1,"devices":[{"device":{"ID":"GPU-a","Parent":"GPU-a"},"verdict":{"State":200}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		n := newNode(t, 1, Options{}, remapPending)
		_ = n.restore(data)
		n.ticks(2, time.Second)
	})
}

func TestRestart(t *testing.T) {
	data, n := remembered(t)
	again := func(o Options) {
		t.Helper()
		n.restart(o)
		n.heard = nil
		must(t, n.restore(data))
	}
	// In the same boot, nothing ends and no event is repeated.
	again(Options{BootID: "boot-1", Scope: "all"})
	n.after(1, time.Second, "GPU-a", events.Failed, "xid_48")
	n.want("GPU-b", events.Degraded, "xid_145")
	if v := n.of("GPU-a"); len(n.heard) != 0 || len(v.Conditions[0].Evidence) != 1 || v.Conditions[0].Evidence[0].Source != "nvml" {
		t.Errorf("heard %v; the verdict is %+v", n.heard, v)
	}
	// The GPU was reset while the exporter was off: its energy restarts at 0.
	n.rows[0][1] = 5
	again(Options{BootID: "boot-1", Scope: "all"})
	n.after(2, time.Second, "GPU-a", events.OK, "")
	n.want("GPU-b", events.Degraded, "xid_145")
	// The node was rebooted.
	n.rows[0][1] = 1e9
	again(Options{BootID: "boot-2", Scope: "all"})
	n.after(1, time.Second, "GPU-a", events.OK, "")
	n.want("GPU-b", events.Degraded, "xid_145") // ends after its quiet time
	testkit.Equal(t, "what was heard", 1, len(n.heard))
	// The rule is off now.
	rules := testkit.Get(Select([]string{"xid_48=off"}))(t)
	again(Options{BootID: "boot-1", Scope: "all", Rules: rules})
	n.after(1, time.Second, "GPU-a", events.OK, "")
}

// TestADeviceThatIsMissingAfterARestart: a device in the file that no collector finds is missing.
func TestADeviceThatIsMissingAfterARestart(t *testing.T) {
	data, n := remembered(t)
	devices := n.status[0].Devices
	again := func(scope string) {
		t.Helper()
		n.restart(Options{BootID: "boot-2", Scope: scope})
		n.status[0].Devices, n.status[0].Up, n.status[0].Cause = devices[:1], true, ""
		n.heard = nil
		must(t, n.restore(data))
	}
	again("all")
	n.status[0].Up, n.status[0].Cause, n.status[0].Devices = false, session.CauseOpening, nil
	n.tick(time.Second)
	if v := n.of("GPU-b"); v.State != events.Degraded || len(n.heard) > 0 {
		t.Errorf("while the library is opened: %v %q, heard %v", v.State, v.Reason, n.heard)
	}
	n.status[0].Cause, n.status[0].Reason = session.CauseNotLoaded, "the driver is not loaded"
	n.after(40, time.Second, "GPU-a", events.Unknown, "not_served")
	n.status[0].Up, n.status[0].Cause, n.status[0].Devices = true, "", devices[:1]
	n.after(130, time.Second, "GPU-a", events.OK, "")
	n.want("GPU-b", events.Failed, "missing")
	n.status[0].Devices = devices
	n.after(1, time.Second, "GPU-b", events.Degraded, "xid_145")
	// Another board has its address: it was replaced.
	again("all")
	other := devices[1]
	other.Device.ID = "GPU-new"
	n.status[0].Devices = []session.DeviceStatus{devices[0], other}
	n.ticks(2, time.Second)
	if got := len(n.Board().Load().Verdicts); got != 2 || n.of("GPU-b").Text != "not there" {
		t.Errorf("%d verdicts, that on the former board is %+v", got, n.of("GPU-b"))
	}
	n.Observe(Observation{Reason: "xid", Code: 79, PCIBusID: other.Device.PCIBusID})
	n.after(1, time.Second, "GPU-new", events.Failed, "xid_79")
	// The selection has changed.
	again("another")
	n.tick(time.Second)
	testkit.Equal(t, "a device that is not selected", "not there", n.of("GPU-b").Text)
	// The device is forgotten after a week.
	again("all")
	n.ticks(8*24, time.Hour)
	testkit.Equal(t, "after a week", "not there", n.of("GPU-b").Text)
}

// TestTheFile: Run reads and writes the file, and reports an unusable file once.
func TestTheFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "health")
	core, logs := observer.New(zap.InfoLevel)
	run := func(f func(n *node)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, 1, Options{Store: NewStore(dir), BootID: "b", Logger: zap.New(core)}, remapPending)
			n.status[0].Devices[0].LastSample = time.Now()
			testkit.Start(t, n.Run)
			synctest.Wait()
			f(n)
			time.Sleep(3 * time.Second)
		})
	}
	name := filepath.Join(dir, fileName)
	run(func(n *node) {
		n.Observe(Observation{Reason: "xid", Code: 48, Device: "GPU-a"})
		time.Sleep(3 * time.Second)
		for _, written := range []bool{false, true} { // once an hour without changes
			_ = os.Remove(name)
			time.Sleep(saveEvery - time.Minute)
			if _, err := os.Stat(name); (err == nil) != written {
				t.Errorf("the file is written again: %v, want %v", err == nil, written)
			}
		}
	})
	data, err := os.ReadFile(name)
	if err != nil || !bytes.Contains(data, []byte("xid_48")) {
		t.Fatalf("the file is %q: %v", data, err)
	}
	lock, err := NewStore(dir).Lock("lock") // as another exporter's
	must(t, err)
	must(t, os.WriteFile(name, data, 0o600))
	run(func(n *node) {
		n.want("GPU-a", events.Failed, "xid_48")
		n.Observe(Observation{Reason: "xid", Code: 79, Device: "GPU-a"})
		time.Sleep(3 * time.Second)
		now, _ := os.ReadFile(name)
		testkit.Equal(t, "a file of another process", string(data), string(now))
		must(t, os.WriteFile(name, bytes.ReplaceAll(data, []byte("xid_48"), []byte("xid_95")), 0o600))
		must(t, lock.Close())
		time.Sleep(2 * retryEvery)
		now, _ = os.ReadFile(name)
		testkit.Has(t, "the file after another process has ended", string(now), "xid_48", "xid_79", "xid_95")
	})
	must(t, os.WriteFile(name, data, 0o600))
	if all := logs.FilterMessageSnippet("cannot save the health").All(); len(all) != 1 || !strings.Contains(fmt.Sprint(all[0].ContextMap()), fmt.Sprint(os.Getpid())) {
		t.Errorf("a directory of another process: %v", all)
	}
	leftover := filepath.Join(dir, "."+fileName) // left by a killed process
	must(t, os.WriteFile(leftover, nil, 0o600))
	must(t, os.Chtimes(leftover, time.Time{}, time.Unix(1, 0))) // synctest bubbles start in 2000
	run(func(n *node) { n.want("GPU-a", events.Failed, "xid_48") })
	if _, err := os.Stat(leftover); err == nil {
		t.Error("a file that was not finished is still there")
	}
	must(t, os.WriteFile(name, data[:len(data)/2], 0o600))
	run(func(n *node) { n.want("GPU-a", events.OK, "") })
	testkit.Equal(t, "lines of the log on a file that is broken", 1, logs.FilterMessageSnippet("cannot restore the health").Len())
	kept, _ := os.ReadFile(filepath.Join(dir, fileFormer))
	testkit.Equal(t, "the broken file, which is kept", string(data[:len(data)/2]), string(kept))
	if data, _ = os.ReadFile(name); !json.Valid(data) {
		t.Errorf("the broken file is not replaced: %q", data)
	}
	must(t, os.Chmod(dir, 0o777))
	run(func(*node) {
		must(t, os.Remove(name))
		must(t, os.Chmod(dir, 0o700))
		time.Sleep(2 * retryEvery) // no other change happens
		testkit.Get(os.Stat(name))(t)
	})
	testkit.Equal(t, "lines of the log on directories that others can write to", 2, logs.FilterMessageSnippet("cannot save the health").Len())
	testkit.Equal(t, "lines of the log that nothing is kept", 0, logs.FilterMessageSnippet("memory only").Len())
}
