package kernellog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/extensions/health/pci"
)

// book is a ledger with its own clock.
type book struct {
	*Ledger
	t    *testing.T
	now  time.Time
	news int
}

const testWindow = 10 * time.Second

func newBook(t *testing.T) *book {
	b := &book{Ledger: NewLedger(testWindow), t: t, now: time.Unix(1700000000, 0)}
	b.Ledger.now = func() time.Time { return b.now }
	return b
}

func gpu(n int) GPU { return GPU{pci.Address{Bus: uint8(n)}, fmt.Sprint(n)} }

func (b *book) driver(n, code int) {
	if b.Driver(gpu(n), code, b.now) {
		b.news++
	}
}

func (b *book) line(n int, e Event) {
	e.Address, e.Time = gpu(n).Address, b.now
	if b.Kernel(gpu(n), &e) {
		b.news++
	}
}

func (b *book) xid(n, code int) { b.line(n, Event{Kind: XID, Code: code}) }

// counts returns the nonzero counters of a metric, without the address.
func (b *book) counts(name string) (out []string) {
	b.t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(b.Ledger)
	families, err := r.Gather()
	must(b.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetName() != "pci_bus_id" {
					labels = append(labels, l.GetValue())
				}
			}
			if f.GetName() == name {
				out = append(out, fmt.Sprintf("%s: %v", strings.Join(labels, " "), m.GetCounter().GetValue()))
			}
		}
	}
	slices.Sort(out)
	return out
}

// want compares the counters after all reports are decided.
func (b *book) want(what string, news int, counts ...string) {
	b.t.Helper()
	b.now = b.now.Add(3 * testWindow)
	if diff := cmp.Diff(counts, b.counts("warpgauge_xid_witness_total")); diff != "" {
		b.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
	if b.news != news {
		b.t.Errorf("%s: %d new XIDs, want %d", what, b.news, news)
	}
}

// TestWitnesses: each XID is counted once, and is new once, in whatever order and number it is
// reported.
func TestWitnesses(t *testing.T) {
	f := func(what string, do func(*book), news int, counts ...string) {
		t.Helper()
		b := newBook(t)
		do(b)
		b.want(what, news, counts...)
	}
	pass := func(b *book, d time.Duration) { b.now = b.now.Add(d) }
	f("the driver alone", func(b *book) { b.driver(1, 79) }, 1, "1 driver 79: 1")
	f("the log alone", func(b *book) { b.xid(1, 79) }, 1, "1 kernel_log 79: 1")
	f("the log first", func(b *book) { b.xid(1, 79); pass(b, 5*time.Second); b.driver(1, 79) }, 1, "1 both 79: 1")
	f("the driver first", func(b *book) { b.driver(1, 79); pass(b, 5*time.Second); b.xid(1, 79) }, 1, "1 both 79: 1")
	f("too far apart", func(b *book) { b.xid(1, 79); pass(b, 11*time.Second); b.driver(1, 79) }, 2, "1 driver 79: 1", "1 kernel_log 79: 1")
	f("other GPUs and codes", func(b *book) { b.xid(1, 79); b.driver(2, 79); b.driver(1, 48) }, 3, "1 driver 48: 1", "1 kernel_log 79: 1", "2 driver 79: 1")
	f("an exception of many SMs, one report", func(b *book) {
		for range 30 {
			b.xid(1, 13)
			pass(b, 10*time.Millisecond)
		}
		b.driver(1, 13)
	}, 1, "1 both 13: 1")
	f("a line for each report", func(b *book) {
		for i := range 8 {
			b.xid(1, 45)
			pass(b, time.Millisecond)
			if i%2 == 1 {
				b.driver(1, 45)
				b.driver(1, 45)
			}
		}
	}, 8, "1 both 45: 8")
	f("reports before their lines", func(b *book) {
		b.driver(1, 45)
		b.driver(1, 45)
		b.xid(1, 45)
		b.xid(1, 45)
	}, 2, "1 both 45: 2")
	f("more reports than lines", func(b *book) { b.xid(1, 31); b.driver(1, 31); b.driver(1, 31); b.driver(1, 31) }, 3, "1 both 31: 1", "1 driver 31: 2")
	f("two errors in the log, of which the driver has one", func(b *book) { b.xid(1, 63); pass(b, 5*time.Second); b.xid(1, 63); b.driver(1, 63) }, 2, "1 both 63: 1", "1 kernel_log 63: 1")
	f("lines of a time without an exporter", func(b *book) {
		for i := range 20 {
			e := Event{Kind: XID, Code: 13, Address: gpu(1).Address, Time: b.now.Add(-time.Hour + time.Duration(i)*time.Millisecond)}
			if b.Kernel(gpu(1), &e) {
				b.news++
			}
		}
		b.driver(1, 13)
	}, 2, "1 driver 13: 1", "1 kernel_log 13: 1")
	f("a GPU that gets its number later", func(b *book) {
		e := Event{Kind: XID, Code: 79, Address: gpu(1).Address, Time: b.now}
		if b.Kernel(GPU{Address: e.Address}, &e) {
			b.news++
		}
		b.driver(1, 79)
	}, 1, "1 both 79: 1")
}

// TestEachReportIsCountedOnce: every driver report is counted as "both" or "driver", and no error
// is new twice.
func TestEachReportIsCountedOnce(t *testing.T) {
	for seed := range uint64(200) {
		b, random := newBook(t), rand.New(rand.NewPCG(seed, 1))
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
		b.now = b.now.Add(time.Hour)
		total := map[string]int{}
		for _, c := range b.counts("warpgauge_xid_witness_total") {
			var n, code, count int
			var who string
			if _, err := fmt.Sscanf(strings.ReplaceAll(c, ":", ""), "%d %s %d %d", &n, &who, &code, &count); err != nil {
				t.Fatal(err)
			}
			total[who] += count
		}
		if total["both"]+total["driver"] != driver || total["both"]+total["kernel_log"] > lines || b.news != total["both"]+total["driver"]+total["kernel_log"] {
			t.Errorf("seed %d: %d reports of the driver and %d lines: %v, %d new", seed, driver, lines, total, b.news)
		}
	}
}

// TestOtherEvents: repeats within a second count once, and a repeated total counts nothing.
func TestOtherEvents(t *testing.T) {
	b := newBook(t)
	for range 100 {
		b.line(1, Event{Kind: AERCorrected})
		b.now = b.now.Add(50 * time.Millisecond)
	}
	ras := func(count int) {
		b.line(2, Event{Kind: RASUncorrected, Block: "umc", Count: count, Total: true})
		b.now = b.now.Add(time.Minute)
	}
	for _, n := range []int{2, 2, 2, 3, 3, 1, 1, 2} { // with a driver reload in between
		ras(n)
	}
	want := []string{"1 aer_corrected: 5", "2 ras_uncorrected: 4"}
	if diff := cmp.Diff(want, b.counts("warpgauge_kernel_log_events_total")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestLedgerIsBounded: memory and series stay bounded for any number of GPUs and codes.
func TestLedgerIsBounded(t *testing.T) {
	b := newBook(t)
	for i := range 3 * maxKeys {
		b.xid(i%200, 1+i%5000)
		b.driver(i%200, 1+i%7000)
		b.line(i%200, Event{Kind: RASUncorrected, Block: fmt.Sprint(i), Count: 1, Total: true})
	}
	for range 1000 {
		b.driver(1, 31)
		b.xid(1, 31)
		b.now = b.now.Add(time.Millisecond)
	}
	b.now = b.now.Add(2 * time.Second)
	for range 3 * maxBursts {
		b.xid(1, 48)
		b.now = b.now.Add(2 * time.Second)
	}
	if len(b.waiting) > maxKeys || len(b.folded) > maxKeys || len(b.totals) > maxKeys {
		t.Errorf("%d, %d and %d entries, want at most %d", len(b.waiting), len(b.folded), len(b.totals), maxKeys)
	}
	codes := map[string]bool{}
	for _, c := range b.counts("warpgauge_xid_witness_total") {
		codes[strings.Fields(c)[2]] = true
	}
	if len(codes) > maxCodes+1 || !codes["other:"] {
		t.Errorf("%d codes are labels, want at most %d and other", len(codes), maxCodes)
	}
}
