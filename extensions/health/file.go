package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"warpgauge/extensions/health/pci"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/file"
	"warpgauge/pkg/view"
)

// Constants of the file that holds the conditions across restarts.
const (
	fileName    = "health.json"
	fileFormer  = "health.json.former" // what another exporter had written, or what could not be read
	fileVersion = 1
	maxFile     = 16 << 20
	saveEvery   = time.Hour   // without changes, to refresh the readings that detect a reset
	retryEvery  = time.Minute // after a failed write
)

// Booted returns when the kernel started.
func Booted() time.Time {
	var up unix.Sysinfo_t
	_ = unix.Sysinfo(&up) // always available
	return time.Now().Add(-time.Duration(up.Uptime) * time.Second)
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

// Store is the directory of the verdicts and of the position in the kernel's log. Only the process that locks it writes.
type Store struct {
	file.Private
	mu    sync.Mutex
	lock  *os.File // locks out other processes; nil: not locked
	after bool     // another process had locked it
}

// NewStore returns the Store of a directory, or nil for "".
func NewStore(directory string) *Store {
	if directory == "" {
		return nil
	}
	return &Store{Private: file.Private{Path: directory, Of: "health", Flag: "health-directory"}}
}

// Write replaces a file as file.Private does, and locks the directory first.
func (s *Store) Write(name string, data []byte) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil {
		if s.lock, err = s.Lock("lock"); err != nil {
			s.after = true
			return err
		}
	}
	if s.after && name == fileName {
		s.after = false
		return errFormer
	}
	return s.Private.Write(name, data)
}

// errFormer is returned once, when another process has ended that had locked the directory.
var errFormer = errors.New("another process has written verdicts")

// Close unlocks the directory.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.lock = nil }()
	return s.lock.Close()
}

// files is a Store with a slot for the next content.
type files struct {
	*Store
	next   chan []byte // one slot
	saved  time.Time
	failed atomic.Bool // the last write failed
}

// open reads the file. It returns nil if no directory is configured. An unusable file is logged, kept under another name and replaced.
func (w *Watch) open(now time.Time) *files {
	if w.o.Store == nil {
		return nil
	}
	out := &files{Store: w.o.Store, next: make(chan []byte, 1), saved: now}
	data, err := out.Read(fileName, maxFile)
	if data != nil {
		if err = w.restore(data); err != nil {
			err = errors.Join(fmt.Errorf("%w; %s has a copy", err, fileFormer), out.Write(fileFormer, data)) // a newer exporter may come back
		}
	}
	if err != nil {
		w.log.Warn("cannot restore the health of devices; starting without it", zap.String("directory", w.o.Store.Path), zap.Error(err))
	}
	return out
}

// restore restores the state of an earlier process, of devices that are known already only the conditions. On an error it
// restores nothing.
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
		if t := w.byID[d.Device.ID]; t != nil {
			w.restoreConditions(t, d, s.Boot != w.o.BootID)
			continue
		}
		if s.Scope != w.o.Scope {
			d.Seen = time.Time{} // it may be outside the selection now
		}
		if d.Device.ID == "" {
			continue
		}
		if t := w.trackDevice(&d.Device, d.Collector); t != nil {
			w.restoreDevice(t, d, s.Boot != w.o.BootID)
		}
	}
	return nil
}

func (w *Watch) restoreDevice(t *tracked, d *savedDevice, rebooted bool) {
	t.restored, t.seen, t.reset, t.reported, t.resets = true, d.Seen, d.Reset, d.Told, map[string]resetReading{}
	for key, value := range d.Resets {
		t.resets[key] = resetReading{value, d.Seen}
	}
	if t.reported.State > events.Failed {
		t.reported = reported{}
	}
	w.restoreConditions(t, d, rebooted)
	if rebooted {
		t.reset, t.resets = w.o.Booted, nil
	}
	if at := address(t.device.PCIBusID); t.collector == "" && at != (pci.Address{}) {
		w.byPCI[at] = t
	}
}

func (w *Watch) restoreConditions(t *tracked, d *savedDevice, rebooted bool) {
	for _, c := range d.Conditions {
		rule := w.o.Rules.find(c.Reason)
		if rule == nil || len(c.Evidence) > maxEvidence || t.find(c.Reason) != nil || rebooted && (rule.End == AfterReset || c.Reason == ruleHung || c.Reason == ruleLost) {
			continue // the rule is off now, the file is not ours, or it ended with the former boot
		}
		t.conditions = append(t.conditions, &condition{rule: rule, active: true, holds: c.Since, since: c.Since, last: c.Last, evidence: c.Evidence, logOnly: c.LogOnly})
		t.dirty = true
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
		d := savedDevice{Device: t.device, Collector: t.collector, Seen: t.seen, Reset: t.reset, Resets: map[string]float64{}, Told: t.reported}
		for key, r := range t.resets {
			d.Resets[key] = r.value
		}
		for _, c := range t.conditions {
			if c.active && c.rule.State != events.Unknown {
				d.Conditions = append(d.Conditions, savedCondition{Reason: c.rule.Name, Since: c.since, Last: c.last, Evidence: c.evidence, LogOnly: c.logOnly})
			}
		}
		out.Devices = append(out.Devices, d)
	}
	return out
}

// write writes the content from save. What another process has written in the meantime it passes to Run instead.
func (w *Watch) write(f *files) {
	for data := range f.next {
		err := f.Write(fileName, data)
		if errors.Is(err, errFormer) {
			if data, err = f.Read(fileName, maxFile); err == nil {
				err = f.Write(fileFormer, data) // as above
				view.Offer(w.former, data)
			}
		}
		if failed := f.failed.Swap(err != nil); err != nil && !failed {
			w.log.Warn("cannot save the health of devices", zap.String("directory", f.Path), zap.Error(err))
		}
	}
	_ = f.Close()
}
