package accounts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"

	"warpgauge/extensions/accounts/report"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
)

const (
	fileName      = "accounts.json"
	fileFormer    = "accounts.json.former" // what could not be read
	fileVersion   = 1
	maxFile       = 64 << 20
	restoreWithin = 30 * time.Second // owners that are unknown for longer have left
)

// Store is the directory of the accounts. Only the process that locks it writes.
type Store struct {
	file.Private
	lock *os.File
}

// NewStore returns the Store of a directory, or nil for "".
func NewStore(directory string) *Store {
	if directory == "" {
		return nil
	}
	return &Store{Private: file.Private{Path: directory, Of: "accounts", Flag: flagDirectory}}
}

// Write replaces a file.
func (s *Store) Write(name string, text []byte) (err error) {
	if s.lock == nil {
		if s.lock, err = s.Lock("lock"); err != nil {
			return err
		}
	}
	return s.Private.Write(name, text)
}

// saved is the content of the file.
type saved struct {
	Version  int            `json:"version"`
	Dropped  uint64         `json:"dropped,omitempty"`
	Boards   []savedBoard   `json:"boards"`
	Accounts []savedAccount `json:"accounts"`
}

type savedBoard struct {
	Device collector.Device `json:"device"`
	Until  int64            `json:"until"`
	Total  int64            `json:"total"`
	Meter  *savedMeter      `json:"counter,omitempty"`
	Owners []report.Owner   `json:"owners"`
}

type savedMeter struct {
	Last  float64 `json:"last"`
	Low   float64 `json:"low,omitempty"`
	LowAt int64   `json:"low_at,omitempty"`
	Stuck bool    `json:"stuck,omitempty"`
	Owed  int64   `json:"owed,omitempty"`
}

type savedAccount struct {
	Owner     report.Owner                    `json:"owner"`
	Board     string                          `json:"board"`
	Came      int64                           `json:"came"`
	Left      int64                           `json:"left,omitempty"`
	Scrapes   int                             `json:"scrapes,omitempty"`
	Hidden    bool                            `json:"hidden,omitempty"`
	Energy    [sources][methods][states]int64 `json:"energy"`
	Busy      *report.Histogram               `json:"busy"`
	Tensor    *report.Histogram               `json:"tensor"`
	OFU       *report.Histogram               `json:"ofu"`
	Spent     [kinds]float64                  `json:"spent"`
	Memory    float64                         `json:"memory"`
	Peak      float64                         `json:"peak"`
	Size      float64                         `json:"size"`
	Throttled [field.ClockReasons]float64     `json:"throttled"`
	XIDs      int                             `json:"xids"`
	Verdicts  []report.Verdict                `json:"verdicts,omitempty"`
	Used      int64                           `json:"used"`
	Seen      int64                           `json:"seen"`
	Since     int64                           `json:"since"`
	Idle      bool                            `json:"idle,omitempty"`
}

// save returns the content of the file. The lock must be held.
func (l *Ledger) save() *saved {
	s := &saved{Version: fileVersion, Dropped: l.dropped}
	for _, b := range l.boards {
		d := savedBoard{Device: b.device, Until: b.until, Total: b.total, Owners: b.resume}
		if b.counts.started {
			d.Meter = &savedMeter{b.counts.last, b.counts.low, b.counts.lowAt, b.counts.stuck, b.counts.owed}
		}
		if b.resume == nil {
			d.Owners = owners(b.now().holders)
		}
		s.Boards = append(s.Boards, d)
	}
	for k, a := range l.accounts {
		busy, tensor, ofu := a.busy, a.tensor, a.ofu
		s.Accounts = append(s.Accounts, savedAccount{
			k.Owner, k.board, a.came, a.left, a.scrapes, a.hidden, a.energy, &busy, &tensor, &ofu, a.spent, a.memory, a.peak, a.size,
			a.throttled, a.xids, slices.Clone(a.verdicts), a.used, a.seen, a.since, a.idle,
		})
	}
	return s
}

func owners(of []holder) (out []report.Owner) {
	for _, h := range of {
		out = append(out, h.owner)
	}
	slices.SortFunc(out, compare)
	return slices.Compact(out)
}

// Restore restores the accounts of an earlier process. It is called before anything else.
func (l *Ledger) Restore(now time.Time) {
	if l.o.Store == nil {
		return
	}
	text, err := l.o.Store.Read(fileName, maxFile)
	if err == nil && text != nil {
		if err = l.restore(text, now); err != nil {
			if e := l.o.Store.Write(fileFormer, text); e == nil {
				err = fmt.Errorf("%w; %s has a copy", err, fileFormer)
			}
		}
	}
	if err != nil {
		l.o.Log.Warn("cannot restore accounts; starting without them", zap.String("directory", l.o.Store.Path), zap.Error(err))
	}
}

func (l *Ledger) restore(text []byte, now time.Time) error {
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("read %s: %w", fileName, err)
	}
	if s.Version != fileVersion || len(s.Boards) > maxAccounts || len(s.Accounts) > maxAccounts {
		return fmt.Errorf("read %s: version %d with %d boards and %d accounts, this exporter writes version %d", fileName, s.Version, len(s.Boards), len(s.Accounts), fileVersion)
	}
	for i := range s.Boards {
		if m := s.Boards[i].Meter; m != nil && !(m.Last >= 0 && m.Last <= maxEnergy && m.Low >= 0 && m.Low <= maxEnergy && m.Owed >= 0) {
			return fmt.Errorf("read %s: the counter of board %q is %+v", fileName, s.Boards[i].Device.ID, *m)
		}
	}
	for i := range s.Accounts {
		if err := s.Accounts[i].check(); err != nil {
			return fmt.Errorf("read %s: %w", fileName, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.restored, l.began, l.dropped = now, now, s.Dropped
	for i := range s.Boards {
		d := &s.Boards[i]
		b := l.board(d.Device.ID, min(d.Until, now.UnixNano()))
		b.there = now
		b.device, b.total, b.resume = d.Device, d.Total, append([]report.Owner{}, d.Owners...)
		if m := d.Meter; m != nil {
			b.counts = meter{true, m.Last, b.until, m.Low, m.LowAt, m.Stuck, m.Owed}
		}
	}
	for i := range s.Accounts {
		d := &s.Accounts[i]
		b := l.boards[d.Board]
		if b == nil {
			continue
		}
		a := l.account(d.Owner, d.Board)
		*a = account{
			owner: d.Owner, board: b, came: d.Came, left: d.Left, scrapes: d.Scrapes, hidden: d.Hidden, energy: d.Energy, spent: d.Spent, memory: d.Memory,
			peak: d.Peak, size: d.Size, throttled: d.Throttled, xids: d.XIDs, verdicts: d.Verdicts, used: d.Used, seen: d.Seen, since: cmp.Or(d.Since, d.Came), idle: d.Idle, use: noUsage,
		}
		for _, h := range []struct{ to, from *report.Histogram }{{&a.busy, d.Busy}, {&a.tensor, d.Tensor}, {&a.ofu, d.OFU}} {
			if h.from != nil {
				*h.to = *h.from
			}
		}
	}
	return nil
}

// check returns an error if there is a value that this program does not write.
func (a *savedAccount) check() error {
	switch a.Owner.Kind {
	case report.KindPod, report.KindJob, report.KindNobody, report.KindUnattributed:
	default:
		return fmt.Errorf("an account of board %q has an owner of kind %q", a.Board, a.Owner.Kind)
	}
	for _, v := range slices.Concat(a.Spent[:], a.Throttled[:], []float64{a.Memory, a.Peak, a.Size, float64(a.XIDs)}) {
		if v < 0 || v > 1e24 {
			return fmt.Errorf("an account of board %q has %v", a.Board, v)
		}
	}
	for _, of := range a.Energy {
		for _, by := range of {
			if least, most := slices.Min(by[:]), slices.Max(by[:]); least < 0 || most > math.MaxInt64/1000 {
				return fmt.Errorf("an account of board %q has %d µJ", a.Board, by)
			}
		}
	}
	return nil
}

// takeUp gives a board to its owners after a restart. Owners that had it before have had it meanwhile.
func (l *Ledger) takeUp(b *board, next []holder, at int64) {
	former := b.resume
	if b.resume = nil; slices.Equal(former, owners(next)) {
		b.take(next, b.until)
		b.spans = append(b.spans[:0], span{b.until, next})
		return
	}
	whole := !slices.ContainsFunc(next, func(h holder) bool { return h.instance != "" })
	if at > b.until && at < l.began.UnixNano() && whole { // a job file says when that was
		var had []holder
		for _, o := range former {
			a := l.account(o, b.device.ID)
			a.board, had = b, append(had, holder{a, b.device.ID, "", 1 / float64(len(former)), len(former)})
		}
		b.take(had, b.until)
		b.spans = append(b.spans[:0], span{b.until, had})
	}
	for _, a := range l.accounts {
		if a.board == b && a.left == 0 && a != b.lost {
			a.left, a.scrapes = max(b.until, b.now().from), 0
		}
	}
	give(b, next, max(at, b.until))
}
