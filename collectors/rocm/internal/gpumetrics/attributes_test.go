package gpumetrics_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/internal/testkit"
)

// attr returns an attribute with these numbers and the bytes of its values.
func attr(unit, kind, id, instances uint64, values ...byte) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, unit<<24|kind<<20|id<<10|instances), values...)
}

// listOf returns a list that claims to have count attributes.
func listOf(content byte, count int32, attributes ...[]byte) []byte {
	b := []byte{0, 0, 1, content}
	b = binary.LittleEndian.AppendUint32(b, uint32(count))
	for _, a := range attributes {
		b = append(b, a...)
	}
	binary.LittleEndian.PutUint16(b, uint16(len(b)))
	return b
}

// Attributes with a known unit and kind are decoded. All others are counted and skipped, and
// the attributes after them are decoded.
func TestAttributes(t *testing.T) {
	const hotspot, celsius, watts, u16, s16 = 0, 2, 3, 2, 3
	last := attr(celsius, u16, 1, 1, 37, 0) // temperature_mem
	f := func(what string, first []byte, want float64, unknown int) {
		t.Helper()
		m := new(gpumetrics.Metrics)
		err := gpumetrics.New().Decode(listOf(9, 2, first, last), m)
		testkit.FatalIf(t, err != nil, "%s: %v", what, err)
		got := m.Float(gpumetrics.TemperatureHotspot, 0)
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) || m.Unknown() != unknown {
			t.Errorf("%s: %v, %d unknown, want %v, %d", what, got, m.Unknown(), want, unknown)
		}
		v := m.Float(gpumetrics.TemperatureMem, 0)
		testkit.ErrorIf(t, v != 37, "%s: the attribute behind it is %v, want 37", what, v)
	}
	nan := math.NaN()
	f("as the kernel writes it", attr(celsius, u16, hotspot, 1, 42, 0), 42, 0)
	f("wider", attr(celsius, 6, hotspot, 1, 42, 0, 0, 0, 0, 0, 0, 0), 42, 0)
	f("one byte", attr(celsius, 0, hotspot, 1, 42), 42, 0)
	f("not available", attr(celsius, u16, hotspot, 1, 0xff, 0xff), nan, 0)
	f("no values", attr(celsius, u16, hotspot, 0), nan, 0)
	f("another unit", attr(watts, u16, hotspot, 1, 42, 0), nan, 1)
	f("a unit to come", attr(200, u16, hotspot, 1, 42, 0), nan, 1)
	f("signed", attr(celsius, s16, hotspot, 1, 42, 0), nan, 1)
	f("more values than there were", attr(celsius, u16, hotspot, 2, 42, 0, 43, 0), 42, 1)
	f("another id", attr(celsius, u16, 49, 1, 42, 0), nan, 1)
	f("the largest id", attr(celsius, u16, 1023, 3, 1, 2, 3, 4, 5, 6), nan, 1)
	word := attr(celsius, u16, hotspot, 1, 42, 0)
	word[7] = 1
	f("upper bits", word, nan, 1)

	twice := listOf(9, 2, attr(celsius, u16, hotspot, 1, 42, 0), attr(celsius, u16, hotspot, 1, 43, 0))
	m := new(gpumetrics.Metrics)
	if err := gpumetrics.New().Decode(twice, m); err != nil || m.Float(gpumetrics.TemperatureHotspot, 0) != 42 || m.Unknown() != 1 {
		t.Errorf("twice: %v, %v, %d unknown, want the first", err, m.Float(gpumetrics.TemperatureHotspot, 0), m.Unknown())
	}
}

// SMU 15 has sums over all links and parts of PCIe's traffic. Unread names the first attributes that are left out or cut.
func TestSums(t *testing.T) {
	m := new(gpumetrics.Metrics)
	attributes := slices.Concat([][]byte{attr(9, 2, 29, 1, 70, 0), attr(8, 2, 23, 2, 1, 0, 2, 0), attr(2, 2, 48, 13, make([]byte, 26)...)},
		slices.Repeat([][]byte{attr(2, 2, 50, 2, 45, 0, 46, 0)}, 21))
	must(t, gpumetrics.New().Decode(listOf(9, int32(len(attributes)), attributes...), m))
	if m.Raw(gpumetrics.XGMIReadAcc, 0) != gpumetrics.NA || m.Raw(gpumetrics.XGMIReadAcc, 8) != 70 || m.Raw(gpumetrics.PCIeBandwidthInst, 1) != 2 {
		t.Errorf("sum over links %d, second part of PCIe %d, want 70 and 2", m.Raw(gpumetrics.XGMIReadAcc, 8), m.Raw(gpumetrics.PCIeBandwidthInst, 1))
	}
	names := m.Unread()
	if m.Unknown() != 22 || len(names) != 16 || names[0] != "id 48, unit 2, 13 values" || names[1] != "id 50, unit 2, 2 values" {
		t.Errorf("%d unknown, %q", m.Unknown(), names)
	}
}

// An impossible list decodes to nothing, however large its counts.
func TestHostileLists(t *testing.T) {
	d, m := gpumetrics.New(), new(gpumetrics.Metrics)
	good := attr(2, 2, 0, 1, 42, 0)
	for what, b := range map[string][]byte{
		"more attributes than it has": listOf(9, 2, good),
		"as many as there are":        listOf(9, math.MaxInt32, good),
		"a negative number":           listOf(9, -1, good),
		"values behind the end":       listOf(9, 1, attr(2, 6, 29, 1023, 1, 2, 3)),
		"a word behind the end":       listOf(9, 1, good[:7]),
		"no count":                    {6, 0, 1, 9, 1, 0},
	} {
		err := d.Decode(b, m)
		testkit.ErrorIf(t, !errors.Is(err, gpumetrics.ErrShort) || m.Has(gpumetrics.TemperatureHotspot), "%s: %v, want %v", what, err, gpumetrics.ErrShort)
	}
	err := d.Decode(listOf(9, 0), m)
	testkit.ErrorIf(t, err != nil || m.Has(gpumetrics.TemperatureHotspot), "no attributes: %v", err)
	if err := d.Decode(listOf(9, 3, good, attr(2, 8, 1, 1, 42, 0), good), m); err != nil || m.Float(gpumetrics.TemperatureHotspot, 0) != 42 || m.Unknown() != 1 {
		t.Errorf("after a type that is not known: %v, %d unknown", err, m.Unknown())
	}
	err = d.Decode(listOf(9, 1, good, good), m)
	testkit.ErrorIf(t, err != nil || m.Float(gpumetrics.TemperatureHotspot, 0) != 42, "bytes behind the last attribute: %v", err)
}

// The file of a partition changes only its engines, and no engines that do not exist.
func TestDecodePartition(t *testing.T) {
	d, m := gpumetrics.New(), new(gpumetrics.Metrics)
	board := listOf(9, 2, attr(2, 2, 0, 1, 42, 0), attr(10, 4, 40, 1, 11, 0, 0, 0))
	part := listOf(1, 2, attr(10, 4, 40, 2, 77, 0, 0, 0, 78, 0, 0, 0), attr(2, 2, 0, 1, 99, 0))
	begin := func() {
		t.Helper()
		if err := d.Decode(board, m); err != nil || m.Float(gpumetrics.XCPGfxBusy, 0) != 11 {
			t.Fatal(err, m.Float(gpumetrics.XCPGfxBusy, 0))
		}
		m.ClearPartitions()
	}
	begin()
	must(t, d.DecodePartition(part, 2, m))
	for i, want := range map[int]float64{0: math.NaN(), 16: 77, 17: 78, 18: math.NaN()} {
		got := m.Float(gpumetrics.XCPGfxBusy, i)
		testkit.ErrorIf(t, got != want && !math.IsNaN(want) || math.IsNaN(got) != math.IsNaN(want), "busy[%d] = %v, want %v", i, got, want)
	}
	got := m.Float(gpumetrics.TemperatureHotspot, 0)
	testkit.ErrorIf(t, got != 42, "the GPU's temperature became %v", got)
	other := slices.Clone(part)
	other[3] = 7
	for what, f := range map[string]func() error{
		"partition -1":     func() error { return d.DecodePartition(part, -1, m) },
		"partition 8":      func() error { return d.DecodePartition(part, 8, m) },
		"another revision": func() error { return d.DecodePartition(other, 0, m) },
		"cut":              func() error { return d.DecodePartition(part[:len(part)-1], 0, m) },
		"empty":            func() error { return d.DecodePartition(nil, 0, m) },
	} {
		begin()
		err := f()
		testkit.ErrorIf(t, err == nil || !math.IsNaN(m.Float(gpumetrics.XCPGfxBusy, 0)), "%s: %v, busy %v", what, err, m.Float(gpumetrics.XCPGfxBusy, 0))
	}
	must(t, d.Decode(file(t, "1.8"), m))
	err := d.DecodePartition(part, 0, m)
	testkit.ErrorIf(t, !errors.Is(err, gpumetrics.ErrRevision), "next to revision 1.8: %v, want %v", err, gpumetrics.ErrRevision)
}

// Any file of a partition changes only engines.
func FuzzDecodePartition(f *testing.F) {
	f.Add(listOf(1, 1, attr(10, 4, 40, 1, 77, 0, 0, 0)))
	f.Add(listOf(1, -1, attr(10, 6, 43, 1023, 77, 0, 0, 0)))
	d := gpumetrics.New()
	board := listOf(9, 1, attr(2, 2, 0, 1, 42, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := new(gpumetrics.Metrics)
		must(t, d.Decode(board, m))
		_ = d.DecodePartition(b, 7, m)
		for field := range gpumetrics.XCPGfxBusy {
			got := m.Raw(field, 0)
			testkit.FatalIf(t, got != gpumetrics.NA && (field != gpumetrics.TemperatureHotspot || got != 42), "field %d became %d", field, got)
		}
	})
}

// The status of a link is up or down. The counter of all cycles is not a residency.
func TestClean(t *testing.T) {
	u32 := func(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
	m := new(gpumetrics.Metrics)
	f := func(cycles, ppt uint32, want uint64) {
		t.Helper()
		b := listOf(9, 3, attr(0, 4, 9, 1, u32(cycles)...), attr(0, 4, 11, 1, u32(ppt)...), attr(0, 2, 31, 3, 0, 0, 1, 0, 2, 0))
		must(t, gpumetrics.New().Decode(b, m))
		testkit.Equal(t, fmt.Sprintf("%d of %d cycles is read as", ppt, cycles), want, m.Raw(gpumetrics.PPTResidency, 0))
		for i, want := range []uint64{0, 1, gpumetrics.NA, gpumetrics.NA} {
			testkit.Equal(t, fmt.Sprintf("status of link %d", i), want, m.Raw(gpumetrics.XGMILinkStatus, i))
		}
	}
	f(10657785, 10657785, gpumetrics.NA)
	f(10657785, 10657784, gpumetrics.NA) // the firmware does not write the file atomically
	f(54536484, 633093, 633093)
	f(0, 0, 0)
	f(100, 4e9, 4e9) // cycles have wrapped
}
