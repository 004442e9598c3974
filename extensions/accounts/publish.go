package accounts

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/view"
)

const (
	// publishEvery is how often the page and the file are made. The page shows what the file has, so that no counter goes back
	// when the exporter is killed.
	publishEvery = 10 * time.Second
	publishSoon  = time.Second // after a change is counted
	checkEvery   = time.Second
	maxVerdicts  = 16
)

// Run publishes the accounts until ctx ends.
func (l *Ledger) Run(ctx context.Context) error {
	verdicts := l.o.Events.Subscribe(256, events.Health)
	defer verdicts.Close()
	var last time.Time
	err := view.Every(ctx, checkEvery, func(now time.Time) {
		for len(verdicts.C) > 0 {
			noteVerdict(l, <-verdicts.C)
		}
		told := check(l, now)
		for _, e := range told {
			l.o.Events.Publish(e)
		}
		if now.Sub(last) >= publishEvery || len(told) > 0 || l.changedSince(last, now) {
			last = now
			l.publish(now)
		}
	})
	l.publish(time.Now())
	return err
}

// changedSince reports whether owners have changed since last and all rows before that change are counted. Then the file should have
// the new owners.
func (l *Ledger) changedSince(last, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.changed.Add(lag + publishSoon)
	return last.Before(at) && !now.Before(at)
}

// publish makes the page, and the file before it.
func (l *Ledger) publish(now time.Time) {
	l.mu.Lock()
	l.countScrapes()
	l.count(now)
	tellPods(l)
	onPage := l.copies(func(a *account) bool {
		return !a.hidden && (a.held() > 0 || a.energy != [sources][methods][states]int64{})
	})
	content := l.save()
	dropped := l.dropped
	l.mu.Unlock()
	page := metrics(onPage, dropped, l.o.PodEvents)
	if l.o.Store != nil {
		text, err := json.Marshal(content)
		if err == nil {
			err = l.o.Store.Write(fileName, text)
		}
		switch failed := err != nil; {
		case failed && !l.failed:
			l.o.Log.Warn("cannot write the accounts; they will not survive a restart", zap.String("directory", l.o.Store.Path), zap.Error(err))
		case !failed && l.failed:
			l.o.Log.Info("accounts are written again")
		}
		l.failed = err != nil
	}
	l.page.Store(&page)
}

// copied is a copy of an account, so that the lock is not held while others use it.
type copied struct {
	account
	device collector.Device
	until  int64 // as of the board
}

// copies returns copies of accounts. The lock must be held.
func (l *Ledger) copies(wanted func(*account) bool) (out []copied) {
	for _, a := range l.accounts {
		if a.board != nil && wanted(a) {
			out = append(out, copied{*a, a.board.device, a.board.until})
		}
	}
	return out
}

// count counts all rows whose owners are known. The lock must be held.
func (l *Ledger) count(now time.Time) {
	if l.view != nil {
		l.refresh(now, false)
	}
	for _, b := range l.boards {
		if b.absent && b.resume == nil { // no row follows
			b.commit(math.MaxInt64)
			b.until = max(b.until, now.Add(-silentAfter).UnixNano())
		}
		b.commit(now.Add(-lag).UnixNano())
		if b.resume == nil && !b.absent {
			b.pass(now.Add(-max(silentAfter, 3*b.every)).UnixNano())
		}
	}
	l.retire(now)
}

// countScrapes counts the scrapes that have shown the last values of owners that have left. A page that is made now is certainly in
// the second gathering from now, and after that in each scrape. The lock must be held.
func (l *Ledger) countScrapes() {
	scrapes, gathers := l.o.Scrapes(), l.gathers.Load()
	for _, a := range l.accounts {
		switch {
		case a.left == 0:
			a.made, a.before = 0, 0
		case a.made == 0:
			a.made = gathers + 2
		case a.before == 0 && gathers >= a.made:
			a.before = scrapes + 1
		case a.before > 0:
			a.scrapes = int(min(scrapes+1-a.before, 2))
		}
	}
}

// Describe implements prometheus.Collector.
func (l *Ledger) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (l *Ledger) Collect(to chan<- prometheus.Metric) {
	l.gathers.Add(1)
	if page := l.page.Load(); page != nil {
		for _, m := range *page {
			to <- m
		}
	}
}
