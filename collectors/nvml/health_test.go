//go:build linux && cgo

package nvml

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// stubPart is a part with the test's values.
type stubPart struct {
	cols   []collector.Column
	values map[field.ID]float64
	asked  map[field.ID]int
	err    error
	closed int
}

func newStub(values map[field.ID]float64) *stubPart {
	p := &stubPart{values: values, asked: map[field.ID]int{}}
	for id := range values {
		p.cols = append(p.cols, collector.Column{Field: id})
	}
	slices.SortFunc(p.cols, func(a, b collector.Column) int { return int(a.Field) - int(b.Field) })
	return p
}

func (p *stubPart) columns() []collector.Column { return p.cols }

func (p *stubPart) sample(row []float64, due []bool) error {
	for i, c := range p.cols {
		if due[i] {
			row[i] = p.values[c.Field]
			p.asked[c.Field]++
		}
	}
	return p.err
}

func (p *stubPart) close() { p.closed++ }

// watches returns each watch's result and code from a row.
func watches(t *testing.T, p part) map[string]string {
	t.Helper()
	row := testkit.Get(sampleAllOf(p))(t)
	out := map[string]string{}
	for i, c := range p.columns() {
		if math.IsNaN(row[i]) {
			continue
		}
		code, watch := c.Labels[0].Value, c.Labels[1].Value
		_, twice := out[watch]
		testkit.ErrorIf(t, twice, "watch %s has two values", watch)
		result, ok := map[float64]string{healthPass: "pass", healthWarn: "warn", healthFail: "fail"}[row[i]]
		if !ok || (row[i] == healthPass) != (code == healthOK) {
			t.Errorf("watch %s is %v with code %s", watch, row[i], code)
		}
		out[watch] = strings.TrimSpace(result + " " + strings.TrimPrefix(strings.TrimPrefix(code, "DCGM_FR_"), "OK"))
	}
	return out
}

// healthy returns the readings of a fault-free board that supports every field.
func healthy() map[field.ID]float64 {
	return map[field.ID]float64{
		202: 0, 237: 5, 238: 16,
		409: 0, 419: 0, 429: 0, 439: 0, 497: 0, 498: 0, 499: 0, 170: 3, 174: 0xaa,
		1204: 0, 1205: 0, 1206: 0, 1207: 0, 1208: 0, 1209: 0, 1211: 0, 1212: 0, 1213: 0, 1214: 0, 1219: 0, 1220: 0, 1216: 0, 1218: 0,
		311: 0, 390: 0, 391: 0, 392: 0, 393: 0, 395: 0, 1507: 0,
		84: 1, 241: 0, 240: 0, 155: 300, 1523: 0,
	}
}

func allPass() map[string]string {
	return map[string]string{"PCIE": "pass", "NVLINK": "pass", "MEM": "pass", "INFOROM": "pass", "THERMAL": "pass", "POWER": "pass", "DRIVER": "pass"}
}

func TestHealthRules(t *testing.T) {
	blank := math.NaN()
	f := func(name, watch, want string, readings map[field.ID]float64) {
		t.Helper()
		values := healthy()
		for id, v := range readings {
			values[id] = v
		}
		expected := allPass()
		expected[watch] = want
		if want == "" {
			delete(expected, watch)
		}
		p := newHealthPart(newStub(values), nil, nil, nil)
		equal(t, expected, watches(t, p), "%s", name)
	}
	f("a healthy board", "MEM", "pass", nil)
	f("63 pages, of one kind unknown", "MEM", "fail RETIRED_PAGES_LIMIT", map[field.ID]float64{390: 63, 391: blank})
	f("the worse of two", "MEM", "fail VOLATILE_DBE_DETECTED", map[field.ID]float64{311: 2, 392: 1})
	f("some of the memory's readings are blank", "MEM", "warn PENDING_PAGE_RETIREMENTS", map[field.ID]float64{311: blank, 395: blank, 392: 1})
	f("InfoROM is unknown", "INFOROM", "", map[field.ID]float64{84: blank})
	f("power was never read", "POWER", "pass", map[field.ID]float64{155: blank})
	f("recovery is unknown", "DRIVER", "", map[field.ID]float64{1523: blank})
	f("replays before we came", "PCIE", "", map[field.ID]float64{202: 7})
}

// TestHealthRises checks that counters are judged by their growth in a minute.
func TestHealthRises(t *testing.T) {
	f := func(name, watch, want string, steps ...map[field.ID]float64) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			stub := newStub(healthy())
			p := newHealthPart(stub, nil, nil, nil)
			var got string
			for _, s := range steps {
				for id, v := range s {
					stub.values[id] = v
				}
				got = watches(t, p)[watch]
				time.Sleep(30 * time.Second)
			}
			testkit.Equal(t, fmt.Sprintf("%s: %s", name, watch), want, got)
		})
	}
	type step = map[field.ID]float64
	// Generation 5 × 16 lanes: 32e9 × 1e-12 × 60 × 16 = 30.72, so the limit is 31 a minute.
	f("32 replays in a minute", "PCIE", "warn PCI_REPLAY_RATE", step{202: 100}, step{202: 120}, step{202: 132})
	f("32 replays, then none for two minutes", "PCIE", "pass", step{202: 100}, step{202: 132}, step{}, step{}, step{}, step{})
	f("the driver was reloaded", "PCIE", "pass", step{202: 100}, step{202: 0}, step{202: 3})
	f("NVLink replays of old", "NVLINK", "pass", step{429: 5, 439: 9}, step{})
	f("CRC errors of old", "NVLINK", "pass", step{409: 1e6}, step{409: 1e6})
	f("CRC errors, 100 a second in a minute", "NVLINK", "fail NVLINK_CRC_ERROR_THRESHOLD", step{409: 0}, step{409: 3000}, step{409: 6000})
	f("power cannot be read any more", "POWER", "warn POWER_UNREADABLE", step{}, step{155: math.NaN()})
	f("slowed by heat half a minute ago", "THERMAL", "warn CLOCK_THROTTLE_THERMAL", step{241: 1e9}, step{241: 2e9}, step{})
	f("slowed by heat two minutes ago", "THERMAL", "pass", step{241: 1e9}, step{241: 2e9}, step{}, step{}, step{}, step{})
}

// TestHealthLinks checks that a link that is not active fails if any link was ever active.
func TestHealthLinks(t *testing.T) {
	var states linkStates
	p := newHealthPart(nil, nil, func() linkStates { return states }, (*costs)(nil).meter(""))
	f := func(when, want string, now linkStates) {
		t.Helper()
		states = now
		testkit.Equal(t, when+": NVLINK", want, watches(t, p)["NVLINK"])
	}
	f("no link was ever up", "", linkStates{known: 0b1111})
	f("three of four links are up", "fail NVLINK_DOWN", linkStates{active: 0b0111, known: 0b1111})
	f("all are up", "pass", linkStates{active: 0b1111, known: 0b1111})
	f("nothing is known", "", linkStates{})
	f("all are down", "fail NVLINK_DOWN", linkStates{known: 0b1111})
}

// TestNoFalseOK checks that NVLINK is absent if none of its inputs has a value, as on a Blackwell GPU with blank
// counters outside a fabric. The absence of XIDs must not make it pass.
func TestNoFalseOK(t *testing.T) {
	blank := math.NaN()
	values := map[field.ID]float64{170: 0, 174: 0, 1216: blank, 1218: blank}
	for id := field.ID(1204); id <= 1214; id++ {
		values[id] = blank
	}
	stub := newStub(values)
	p := newHealthPart(stub, fakeXIDs(t, &fakeEvents{}, zap.NewNop()), nil, nil)
	f := func(what string, want map[string]string) {
		t.Helper()
		equal(t, want, watches(t, p), "%s", what)
	}
	f("nothing is known", map[string]string{"ALL": "pass"})
	stub.values[1212] = 0
	f("one counter answers", map[string]string{"ALL": "pass", "NVLINK": "pass"})
	stub.values[1212] = blank
	stub.values[1218] = 1e-12
	f("the worst link's rate at the limit", map[string]string{"ALL": "pass", "NVLINK": "pass"})
	stub.values[1218] = 1.5e-12
	f("and above", map[string]string{"ALL": "pass", "NVLINK": "fail NVLINK_EFFECTIVE_BER_THRESHOLD"})
}

// TestHealthInfoROM checks that the InfoROM is read once an hour.
func TestHealthInfoROM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stub := newStub(healthy())
		p := newHealthPart(stub, nil, nil, nil)
		for range 5 * 120 {
			watches(t, p)
			time.Sleep(30 * time.Second)
		}
		testkit.Equal(t, "questions for the InfoROM in five hours", 5, stub.asked[field.InfoROMValid])
		testkit.Equal(t, "questions for ECC errors in 600 samples", 600, stub.asked[311])
	})
}

func TestHealthErrors(t *testing.T) {
	stub := newStub(healthy())
	p := newHealthPart(stub, nil, nil, nil)
	row, due := make([]float64, len(p.columns())), make([]bool, len(p.columns()))
	err := p.sample(row, due)
	testkit.ErrorIf(t, err != nil || len(stub.asked) > 0, "a sample in which nothing is due: error %v, asked for %v", err, stub.asked)
	due[3] = true
	stub.err = collector.ErrDeviceLost
	err = p.sample(row, due)
	testkit.ErrorIf(t, err != collector.ErrDeviceLost, "a sample of a lost board: got %v, want ErrDeviceLost", err) //nolint:errorlint // returned unwrapped
	stub.err = nil
	testkit.Equal(t, "allocations per sample", 0.0, testing.AllocsPerRun(100, func() { _ = p.sample(row, due) }))
}
