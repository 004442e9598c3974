package health

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"warpgauge/extensions/health/pci"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/file"
)

// Constants of the file that holds the conditions across restarts.
const (
	fileName    = "health.json"
	fileVersion = 1
	maxFile     = 16 << 20
	saveEvery   = time.Hour   // without changes, to refresh the readings that detect a reset
	retryEvery  = time.Minute // after a failed write
)

// BootID returns the kernel's id of the current boot, or "" if it is unknown.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(b) > 64 {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// saved is the content of the file.
type saved struct {
	Version int           `json:"version"`
	Boot    string        `json:"boot_id,omitempty"`
	Scope   string        `json:"scope,omitempty"`
	Devices []savedDevice `json:"devices"`
}

type savedDevice struct {
	Device     collector.Device   `json:"device"`
	Collector  string             `json:"collector,omitempty"`
	Seen       time.Time          `json:"seen"`
	Reset      time.Time          `json:"reset,omitzero"`
	Resets     map[string]float64 `json:"readings,omitempty"`
	Told       reported           `json:"verdict"`
	Conditions []savedCondition   `json:"conditions,omitempty"`
}

type savedCondition struct {
	Reason   string            `json:"reason"`
	Since    time.Time         `json:"since"`
	Last     time.Time         `json:"last"`
	Evidence []events.Evidence `json:"evidence,omitempty"`
	LogOnly  bool              `json:"log_only,omitempty"`
}

// files is the directory with a slot for the next content.
type files struct {
	file.Private
	lock   *os.File    // locks out other writers; nil: not locked yet
	next   chan []byte // one slot
	saved  time.Time
	failed atomic.Bool // the last write failed
}

// open reads the file. It returns nil if no directory is configured. An unusable file is logged and
// replaced.
func (w *Watch) open(now time.Time) *files {
	if w.o.Directory == "" {
		return nil
	}
	out := &files{Private: file.Private{Path: w.o.Directory, Of: "health", Flag: "health-directory"}, next: make(chan []byte, 1), saved: now}
	data, err := out.Read(fileName, maxFile)
	if data != nil {
		err = w.restore(data)
	}
	if err != nil {
		w.log.Warn("cannot restore the health of devices; starting without it", zap.String("directory", w.o.Directory), zap.Error(err))
	}
	return out
}

// restore restores the state of an earlier process. On an error it restores nothing.
func (w *Watch) restore(data []byte) error {
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("read %s: %w", fileName, err)
	}
	if s.Version != fileVersion {
		return fmt.Errorf("read %s: version %d, this exporter writes %d", fileName, s.Version, fileVersion)
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.Device.ID == "" || w.byID[d.Device.ID] != nil {
			continue
		}
		if s.Scope != w.o.Scope {
			d.Seen = time.Time{} // it may be outside the selection now
		}
		if t := w.trackDevice(&d.Device, d.Collector); t != nil {
			w.restoreDevice(t, d, s.Boot != w.o.BootID)
		}
	}
	return nil
}

func (w *Watch) restoreDevice(t *tracked, d *savedDevice, rebooted bool) {
	t.restored, t.seen, t.reset, t.reported, t.resets = true, d.Seen, d.Reset, d.Told, d.Resets
	if t.reported.State > events.Failed {
		t.reported = reported{}
	}
	for _, c := range d.Conditions {
		rule := w.o.Rules.find(c.Reason)
		if rule == nil || len(c.Evidence) > maxEvidence || t.find(c.Reason) != nil || rebooted && (c.Reason == ruleHung || c.Reason == ruleLost) {
			continue // the rule is off now, the file is not ours, or the state was that of the former boot
		}
		t.conditions = append(t.conditions, &condition{rule: rule, active: true, holds: c.Since, since: c.Since, last: c.Last, evidence: c.Evidence, logOnly: c.LogOnly})
	}
	if rebooted {
		t.recordReset(time.Now())
		t.resets = nil
	}
	if at := address(t.device.PCIBusID); t.collector == "" && at != (pci.Address{}) {
		w.byPCI[at] = t
	}
}

// save passes the verdicts to the writing goroutine if they have changed or are old. With end set,
// that goroutine ends afterwards.
func (w *Watch) save(f *files, now time.Time, end bool) {
	if f == nil {
		return
	}
	age := now.Sub(f.saved)
	if w.unsaved || end || age >= saveEvery || age < 0 || age >= retryEvery && f.failed.Load() {
		select {
		case <-f.next: // replaces older content
		default:
		}
		if data, err := json.Marshal(w.content()); err == nil { // all values can be encoded
			f.next <- data
		}
		w.unsaved, f.saved = false, now
	}
	if end {
		close(f.next)
	}
}

// content returns the content of the file.
func (w *Watch) content() *saved {
	out := &saved{Version: fileVersion, Boot: w.o.BootID, Scope: w.o.Scope, Devices: []savedDevice{}}
	for _, t := range w.devices {
		d := savedDevice{Device: t.device, Collector: t.collector, Seen: t.seen, Reset: t.reset, Resets: t.resets, Told: t.reported}
		for _, c := range t.conditions {
			if c.active && c.rule.State > events.Unknown {
				d.Conditions = append(d.Conditions, savedCondition{Reason: c.rule.Name, Since: c.since, Last: c.last, Evidence: c.evidence, LogOnly: c.logOnly})
			}
		}
		out.Devices = append(out.Devices, d)
	}
	return out
}

// write locks the directory, and writes the content from save.
func (w *Watch) write(f *files) {
	for data := range f.next {
		var err error
		if f.lock == nil {
			f.lock, err = f.Lock("lock")
		}
		if err == nil {
			err = f.Write(fileName, data)
		}
		if failed := f.failed.Swap(err != nil); err != nil && !failed {
			w.log.Warn("cannot save the health of devices", zap.String("directory", w.o.Directory), zap.Error(err))
		}
	}
	_ = f.lock.Close() // unlocks
}
