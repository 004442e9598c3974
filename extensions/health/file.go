package health

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"warpgauge/pkg/verdict"

	"go.uber.org/zap"

	"warpgauge/extensions/health/pci"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/file"
)

// The file in which conditions outlive the process.
const (
	fileName    = "health.json"
	fileVersion = 1
	maxFile     = 16 << 20
	saveEvery   = time.Hour   // if nothing has changed: readings that show a reset grow older
	retryEvery  = time.Minute // if the file could not be written
)

// BootID returns the kernel's name of the time since the node was started; "" if it is not
// known.
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
	Reason   string             `json:"reason"`
	Since    time.Time          `json:"since"`
	Last     time.Time          `json:"last"`
	Evidence []verdict.Evidence `json:"evidence,omitempty"`
}

// files is the directory, and the content that waits to be written.
type files struct {
	file.Private
	next   chan []byte // room for one
	saved  time.Time
	failed atomic.Bool // the last was not written
}

// open reads the file. It returns nil if nothing is to be kept. A file that cannot be used
// is reported, and replaced.
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
		w.log.Warn("what was known of devices' health cannot be used: it begins with what is seen now", zap.String("directory", w.o.Directory), zap.Error(err))
	}
	return out
}

// restore takes what a former process knew. On an error nothing of it is taken.
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
			d.Seen = time.Time{} // it may not be selected now
		}
		if t := w.trackDevice(&d.Device, d.Collector); t != nil {
			w.restoreDevice(t, d, s.Boot != w.o.BootID)
		}
	}
	return nil
}

func (w *Watch) restoreDevice(t *tracked, d *savedDevice, rebooted bool) {
	t.restored, t.seen, t.reset, t.reported, t.resets = true, d.Seen, d.Reset, d.Told, d.Resets
	if t.reported.State > verdict.Failed {
		t.reported = reported{}
	}
	for _, c := range d.Conditions {
		rule := w.o.Rules.find(c.Reason, 0)
		if rule == nil || len(c.Evidence) > maxEvidence || t.find(c.Reason) != nil {
			continue // a rule that is off now, or no file of ours
		}
		t.conditions = append(t.conditions, &condition{rule: rule, active: true, holds: c.Since, since: c.Since, last: c.Last, evidence: c.Evidence})
	}
	if rebooted {
		t.recordReset(time.Now())
		t.resets = nil
	}
	if at := address(t.device.PCIBusID); t.collector == "" && at != (pci.Address{}) {
		w.byPCI[at] = t
	}
}

// save gives the verdicts to the goroutine that writes: if they have changed or are old, and
// at the end, after which that goroutine ends.
func (w *Watch) save(f *files, now time.Time, end bool) {
	if f == nil {
		return
	}
	age := now.Sub(f.saved)
	if w.unsaved || end || age >= saveEvery || age < 0 || age >= retryEvery && f.failed.Load() {
		select {
		case <-f.next: // older than this
		default:
		}
		if data, err := json.Marshal(w.content()); err == nil { // it has no value that JSON lacks
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
			if c.active && c.rule.State > verdict.Unknown {
				d.Conditions = append(d.Conditions, savedCondition{Reason: c.rule.Name, Since: c.since, Last: c.last, Evidence: c.evidence})
			}
		}
		out.Devices = append(out.Devices, d)
	}
	return out
}

// write writes what save gives it.
func (w *Watch) write(f *files) {
	for data := range f.next {
		err := f.Write(fileName, data)
		if failed := f.failed.Swap(err != nil); err != nil && !failed {
			w.log.Warn("health of devices cannot be kept", zap.String("directory", w.o.Directory), zap.Error(err))
		}
	}
}
