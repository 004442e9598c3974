package kernellog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/extensions/health/pci"
	"warpgauge/internal/testkit"
)

// book is a Deduplicator with its own clock.
type book struct {
	*Deduplicator
	now  time.Time
	news int
}

const testWindow = 10 * time.Second

func newBook() *book {
	return &book{Deduplicator: NewDeduplicator(testWindow), now: time.Unix(1700000000, 0)}
}

func gpu(n int) GPU { return GPU{pci.Address{Bus: uint8(n)}, fmt.Sprint(n)} }

func (b *book) driver(n, code int) {
	if b.AddDriverXID(gpu(n), code, b.now) {
		b.news++
	}
}

func (b *book) line(g GPU, e Event) {
	e.Address, e.Time = g.Address, b.now
	if news, _ := b.AddKernelEvent(g, &e); news {
		b.news++
	}
}

func (b *book) xid(n, code int) { b.line(gpu(n), Event{Kind: XID, Code: code}) }

// TestXIDsCountOnce: each XID is new once, in whatever order and number it is reported.
func TestXIDsCountOnce(t *testing.T) {
	f := func(what string, do func(*book), news int) {
		t.Helper()
		b := newBook()
		do(b)
		testkit.Equal(t, what+": new XIDs", news, b.news)
	}
	pass := func(b *book, d time.Duration) { b.now = b.now.Add(d) }
	f("the driver alone", func(b *book) { b.driver(1, 79) }, 1)
	f("the log alone", func(b *book) { b.xid(1, 79) }, 1)
	f("the log first", func(b *book) { b.xid(1, 79); b.xid(2, 48); pass(b, 5*time.Second); b.driver(1, 79) }, 2)
	f("the driver first", func(b *book) { b.driver(1, 79); pass(b, 5*time.Second); b.xid(1, 79) }, 1)
	f("too far apart", func(b *book) { b.xid(1, 79); pass(b, 11*time.Second); b.driver(1, 79) }, 2)
	f("other GPUs and codes", func(b *book) { b.xid(1, 79); b.driver(2, 79); b.driver(1, 48) }, 3)
	f("an exception of many SMs, one report", func(b *book) {
		for range 30 {
			b.xid(1, 13)
			pass(b, 10*time.Millisecond)
		}
		b.driver(1, 13)
	}, 1)
	f("a line for each report", func(b *book) {
		for i := range 8 {
			b.xid(1, 45)
			pass(b, time.Millisecond)
			if i%2 == 1 {
				b.driver(1, 45)
				b.driver(1, 45)
			}
		}
	}, 8)
	f("reports before their lines", func(b *book) { b.driver(1, 45); b.driver(1, 45); b.xid(1, 45); b.xid(1, 45) }, 2)
	f("more reports than lines", func(b *book) { b.xid(1, 31); b.driver(1, 31); b.driver(1, 31); b.driver(1, 31) }, 3)
	f("two errors in the log, and the driver reports one of them", func(b *book) { b.xid(1, 63); pass(b, 5*time.Second); b.xid(1, 63); b.driver(1, 63) }, 2)
	f("lines of a time without an exporter", func(b *book) {
		pass(b, -time.Hour)
		for range 20 {
			b.xid(1, 13)
			pass(b, time.Millisecond)
		}
		pass(b, time.Hour)
		b.driver(1, 13)
	}, 2)
	f("a GPU that gets its number later", func(b *book) {
		b.line(GPU{Address: gpu(1).Address}, Event{Kind: XID, Code: 79})
		b.driver(1, 79)
	}, 1)
}

// TestNewsAreBounded: an XID is never new more often than its reports and bursts of lines, nor less than either.
func TestNewsAreBounded(t *testing.T) {
	for seed := range uint64(200) {
		b, random := newBook(), rand.New(rand.NewPCG(seed, 1))
		driver, lines := 0, 0
		for range random.IntN(60) {
			if random.IntN(2) == 0 {
				b.driver(1, 31)
				driver++
			} else {
				b.xid(1, 31)
				lines++
			}
			b.now = b.now.Add(time.Duration(random.Int64N(int64(15 * time.Second / (1 << random.IntN(12))))))
		}
		testkit.Between(t, fmt.Sprintf("seed %d: new of %d reports of the driver and %d lines", seed, driver, lines), driver, driver+lines, b.news)
	}
}

// TestOtherEvents: repeats within a second count once, and a repeated total counts nothing.
func TestOtherEvents(t *testing.T) {
	b := newBook()
	for range 100 {
		b.line(gpu(1), Event{Kind: AERCorrected})
		b.line(gpu(3), Event{Kind: AERCorrected})
		b.now = b.now.Add(50 * time.Millisecond)
	}
	for _, n := range []int{2, 2, 2, 2, 3, 3, 1, 1, 2} { // with a driver reload in between
		b.line(gpu(2), Event{Kind: RASUncorrected, Block: "umc", Count: n, Total: true})
		b.line(gpu(2), Event{Kind: RASUncorrected, Block: "gfx", Count: n, Total: true})
		b.now = b.now.Add(time.Minute)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(b.Deduplicator)
	families := testkit.Get(r.Gather())(t)
	var got []string
	for _, m := range families[0].GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetValue())
		}
		got = append(got, fmt.Sprintf("%s: %v", strings.Join(labels, " "), m.GetCounter().GetValue()))
	}
	slices.Sort(got)
	testkit.Equal(t, "events", []string{"1 aer_corrected 00000000:01:00.0: 5", "2 ras_uncorrected 00000000:02:00.0: 8", "3 aer_corrected 00000000:03:00.0: 5"}, got)
}

// TestDeduplicatorIsBounded: memory stays bounded for any number of GPUs, codes and reports.
func TestDeduplicatorIsBounded(t *testing.T) {
	b := newBook()
	for i := range 3 * maxKeys {
		b.xid(i%200, 1+i%5000)
		b.driver(i%200, 1+i%7000)
		b.line(gpu(i%200), Event{Kind: RASUncorrected, Block: fmt.Sprint(i), Count: 1, Total: true})
	}
	for range 3 * maxDriver {
		b.driver(1, 31)
		b.now = b.now.Add(testWindow)
		b.xid(1, 31)
		b.now = b.now.Add(testWindow)
	}
	if r := b.reportsLocked(gpu(1), 31); len(b.xids) > maxKeys || len(b.others) > maxKeys || len(r.bursts) > maxBursts || len(r.driver) > maxDriver {
		t.Errorf("%d and %d entries, want at most %d; %d bursts, %d reports", len(b.xids), len(b.others), maxKeys, len(r.bursts), len(r.driver))
	}
}
