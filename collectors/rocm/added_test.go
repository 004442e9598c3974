//go:build linux && cgo

package rocm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/collectors/rocm/rocmtest/smitest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

// amdVersions has the words of each release's version.
var amdVersions = map[smitest.AMDSMI][]string{
	2405: {"24 5 3 0"}, 2406: {"24 6 3 0"}, 2407: {"24 7 1 0", "25 1 0 0"}, 2502: {"25 25 2 0"}, 2601: {"26 1 0", "26 5 0", "27 0 0", "27 1 0"},
}

// amdFake returns a fake AMD SMI for a tree. All functions work except those for records.
func amdFake(t testing.TB, tree *rocmtest.Tree, release smitest.AMDSMI, version string, without ...string) *smitest.Fake {
	t.Helper()
	f := smitest.CompileAMD(t, release).New(t, without...)
	f.SetDevices(t, tree)
	f.Set(t, "version", "ok "+version)
	for _, name := range []string{"amdsmi_get_gpu_board_info", "amdsmi_get_gpu_vbios_info", "amdsmi_get_gpu_vram_info"} {
		f.Set(t, name, "ok")
	}
	return f
}

// withAMD opens a tree with the library.
func withAMD(t *testing.T, tree *rocmtest.Tree, fake *smitest.Fake) *simulated {
	t.Helper()
	return &simulated{mustOpen(t, Options{Root: tree.Root, Source: SourceAMDSMI, Library: fake.Path}, collectortest.Fields()), tree}
}

func (s *simulated) fact(name string) string {
	for _, l := range s.sources[0].Devices()[0].Facts {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}

// futureMetrics gives the GPUs an unknown revision of gpu_metrics.
func futureMetrics(t *testing.T, tree *rocmtest.Tree) {
	t.Helper()
	for _, g := range tree.GPUs {
		g.Set(t, "gpu_metrics", "\x40\x00\x01\x63"+strings.Repeat("\x00", 60))
	}
}

// TestAMDReleases checks that each release's structures give the same facts, if the release has them. The fake checks
// that one thread makes all calls.
func TestAMDReleases(t *testing.T) {
	for _, release := range smitest.AMDSMIReleases() {
		for _, version := range amdVersions[release] {
			t.Run(version, func(t *testing.T) {
				tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.8"})
				futureMetrics(t, tree)
				s := withAMD(t, tree, amdFake(t, tree, release, version))
				s.sample()
				for name, want := range map[string]string{
					"amd_gpu_board_manufacturer": "AMD", "amd_gpu_board_fru_id": "113-AMDG302110C",
					"amd_gpu_vbios_name": "AMD MI300X_HW_SRIOV_CVS_1VF", "amd_gpu_vbios_build_date": "2024/06/05 12:13", "amd_gpu_vbios_part_number": "113-M3000100-102",
					"amd_gpu_memory_type": "HBM3", "amd_gpu_memory_vendor": "Hynix",
				} {
					testkit.Equal(t, name, want, s.fact(name))
				}
				width, bandwidth := 8192.0, 5300e9
				if release < 2407 {
					width = absent
				}
				if release < 2502 {
					bandwidth = nan
				}
				s.want(1, "amd_gpu_memory_bus_width_bits", "", width)
				s.want(1, "amd_gpu_memory_max_bandwidth_bytes_per_second", "", bandwidth)
				s.want(1, "amd_gpu_cper_records", "severity=fatal", nan)
				s.want(1, "amd_gpu_cper_age_seconds", "severity=fatal", nan)
				// Values of /sys still come from /sys.
				s.want(1, "DCGM_FI_DEV_GPU_UTIL", "", float64(tree.GPUs[1].State.Util))
			})
		}
	}
}

// TestAMDUnknownReleases checks that records of a release with unknown headers are read, and its structures are not.
func TestAMDUnknownReleases(t *testing.T) {
	for version, shown := range map[string]string{"28 0 0": "28.0", "25 3 0": "25.3", "26 0 0": "26.0", "23 4 0 0": "23.4", "": "of unknown version"} {
		t.Run(shown, func(t *testing.T) {
			tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X})
			futureMetrics(t, tree)
			fake := amdFake(t, tree, 2601, version)
			fake.Set(t, "amdsmi_get_gpu_cper_entries", "ok")
			s := withAMD(t, tree, fake)
			s.sample()
			s.want(0, "amd_gpu_cper_records", "severity=fatal", 0)
			testkit.Has(t, "reason", s.reason("amd_gpu_memory_bus_width_bits"), "the exporter cannot decode the structures of libamd_smi "+shown+"; it supports some versions of 24.5 to 27.1")
			testkit.Equal(t, "manufacturer", "", s.fact("amd_gpu_board_manufacturer"))
			for _, c := range fake.Calls(t) {
				testkit.ErrorIf(t, strings.HasSuffix(c.Function, "_info"), "%s was called", c.Function)
			}
		})
	}
}

// TestAMDRecordsCrash checks that 26.4's amdsmi_get_gpu_cper_entries is not called, because it ends the process.
func TestAMDRecordsCrash(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X})
	fake := amdFake(t, tree, 2601, "26 4 0")
	fake.Set(t, "amdsmi_get_gpu_cper_entries", "abort")
	s := withAMD(t, tree, fake)
	s.sample()
	s.want(0, "amd_gpu_memory_bus_width_bits", "", 8192)
	got, want := s.reason("amd_gpu_cper_records"), "no_symbol: reading records with libamd_smi 26.4 ends the process"
	testkit.ErrorIf(t, !strings.HasPrefix(got, want), "reason %q, want %q", got, want)
}

func TestAMDLibraryWithoutSymbols(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X})
	for _, symbol := range []string{"amdsmi_init", "amdsmi_shut_down", "amdsmi_get_socket_handles", "amdsmi_get_processor_handles", "amdsmi_get_processor_type", "amdsmi_get_gpu_device_bdf"} {
		fake := amdFake(t, tree, 2601, "26 5 0", symbol)
		unused(t, tree, fake.Path, symbol)
	}
	unused(t, tree, "/nowhere/libamd_smi.so", "the loader finds no")
	s := withAMD(t, tree, amdFake(t, tree, 2601, "26 5 0", "amdsmi_get_gpu_cper_entries", "amdsmi_get_gpu_vram_info", "amdsmi_get_gpu_board_info"))
	s.sample()
	for _, name := range []string{"amd_gpu_cper_records", "amd_gpu_memory_bus_width_bits"} {
		got := s.reason(name)
		testkit.ErrorIf(t, !strings.HasPrefix(got, "no_symbol: this libamd_smi has no amdsmi_get_"), "%s: %q", name, got)
	}
	testkit.Equal(t, "date of the VBIOS", "2024/06/05 12:13", s.fact("amd_gpu_vbios_build_date"))
}

// unused checks that a library that cannot be loaded is logged once and costs no value of /sys.
func unused(t *testing.T, tree *rocmtest.Tree, library, why string) {
	t.Helper()
	core, logs := observer.New(zap.WarnLevel)
	s := &simulated{opened: mustOpen(t, Options{Root: tree.Root, Source: SourceAMDSMI, Library: library, Log: zap.New(core)}, collectortest.Fields())}
	s.sample()
	v, ok := s.value(uuidOf(tree.GPUs[0]), "DCGM_FI_DEV_GPU_TEMP", "")
	testkit.ErrorIf(t, !ok || !(v > 0), "%s: temperature %v", library, v)
	if all := logs.All(); len(all) != 1 || !strings.Contains(all[0].Message, "cannot load AMD SMI") || !strings.Contains(fmt.Sprint(all[0].ContextMap()["error"]), why) {
		t.Errorf("log %v, want one line with %q", all, why)
	}
}

// TestAMDRecords checks the number of records, and the time and AFIDs of the newest.
func TestAMDRecords(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 2})
	fake := amdFake(t, tree, 2601, "26 5 0")
	fake.Set(t, "amdsmi_get_gpu_cper_entries", "ok")
	fake.Set(t, "amdsmi_get_afids_from_cper", "ok 30 24")
	now := time.Now()
	fatal := now.Add(-15 * time.Hour).Truncate(time.Second)
	fake.SetRecords(t, 0, slices.Concat(
		rocmtest.CPER(rocmtest.CPERCorrected, now.Add(-time.Hour)), rocmtest.CPER(rocmtest.CPERFatal, fatal.Add(-time.Hour)),
		rocmtest.CPER(rocmtest.CPERFatal, fatal), rocmtest.CPER(rocmtest.CPERCorrected, now.Add(time.Hour)),
	))
	fake.SetRecords(t, 1, rocmtest.CPER(rocmtest.CPERFatal, now.Add(time.Hour)))
	s := withAMD(t, tree, fake)
	s.sample()
	s.want(1, "amd_gpu_cper_undated", "severity=fatal", 1)
	s.want(1, "amd_gpu_cper_age_seconds", "severity=fatal", nan)
	s.want(0, "amd_gpu_cper_records", "severity=fatal", 2)
	s.want(0, "amd_gpu_cper_records", "severity=non_fatal_corrected", 2)
	s.want(0, "amd_gpu_cper_records", "severity=non_fatal_uncorrected", 0)
	s.want(0, "amd_gpu_cper_timestamp_seconds", "severity=fatal", float64(fatal.Unix()))
	s.want(0, "amd_gpu_cper_timestamp_seconds", "severity=non_fatal_uncorrected", nan)
	s.want(0, "amd_gpu_cper_undated", "severity=non_fatal_uncorrected", 0)
	s.want(0, "amd_gpu_cper_undated", "severity=fatal", 0)
	s.want(0, "amd_gpu_cper_afid", "index=0,severity=fatal", 30)
	s.want(0, "amd_gpu_cper_afid", "index=1,severity=fatal", 24)
	s.want(0, "amd_gpu_cper_afid", "index=2,severity=fatal", nan)
	// A record from the future does not hide the previous record.
	s.want(0, "amd_gpu_cper_timestamp_seconds", "severity=non_fatal_corrected", float64(now.Add(-time.Hour).Unix()))
	age, _ := s.value(uuidOf(tree.GPUs[0]), "amd_gpu_cper_age_seconds", "severity=fatal")
	since := time.Since(fatal).Seconds()
	testkit.ErrorIf(t, age > since || age < since-60, "age %v, want about %v", age, since)
}

// TestAMDAbsurdRecords checks that invalid records are not read out of bounds, and that the records before them count.
func TestAMDAbsurdRecords(t *testing.T) {
	at := time.Now().Add(-time.Minute)
	good := rocmtest.CPER(rocmtest.CPERFatal, at)
	with := func(offset int, v uint32) []byte {
		b := slices.Clone(good)
		binary.LittleEndian.PutUint32(b[offset:], v)
		return b
	}
	for name, c := range map[string]struct {
		records []byte
		answer  string
		want    float64
		afids   float64
	}{
		"nothing":             {nil, "ok", 0, nan},
		"cut":                 {slices.Concat(good, good[:300]), "ok", 1, 19},
		"cut header":          {slices.Concat(good, good[:100]), "ok", 1, 19},
		"garbage":             {slices.Repeat([]byte{0xee}, 4000), "ok", 0, nan},
		"length of 0":         {slices.Concat(good, with(20, 0)), "ok", 1, 19},
		"length of 4 GiB":     {slices.Concat(good, with(20, math.MaxUint32)), "ok", 1, 19},
		"65,535 sections":     {with(10, 0x1ffff), "ok", 1, nan},
		"section beyond":      {with(128, 1<<31), "ok", 1, nan},
		"severity 10":         {slices.Concat(with(12, 10), good), "ok", 1, 19},
		"more than room":      {good, "ok 18446744073709551615", 1, 19},
		"less than a header":  {good, "ok 127", 0, nan},
		"no time":             {with(16, 0), "ok", 1, 19},
		"failed":              {good, "status 14", nan, nan},
		"not supported":       {good, "status 2", nan, nan},
		"a thousand in a row": {slices.Repeat(good, 1000), "ok", 1000, 19},
		"4e9 field ids":       {good, "ok", 1, 19},
	} {
		t.Run(name, func(t *testing.T) {
			tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 1})
			fake := amdFake(t, tree, 2601, "27 0 0")
			fake.Set(t, "amdsmi_get_gpu_cper_entries", c.answer)
			fake.Set(t, "amdsmi_get_afids_from_cper", "ok 19")
			if name == "4e9 field ids" { // more than fit
				fake.Set(t, "afids", "ok 4000000000")
			}
			fake.SetRecords(t, 0, c.records)
			s := withAMD(t, tree, fake)
			s.sample()
			s.want(0, "amd_gpu_cper_records", "severity=fatal", c.want)
			s.want(0, "amd_gpu_cper_afid", "index=0,severity=fatal", c.afids)
			if c.answer == "status 14" {
				testkit.Has(t, "reason", s.reason("amd_gpu_cper_records"), "or cannot read the driver's records")
			}
			if name == "no time" {
				s.want(0, "amd_gpu_cper_age_seconds", "severity=fatal", nan)
			}
		})
	}
}

// TestAMDHangs checks that a library that hangs, at its start or in a call, delays no value of /sys and leaves its own
// values blank.
func TestAMDHangs(t *testing.T) {
	for _, function := range []string{"amdsmi_init", "amdsmi_get_gpu_board_info", "amdsmi_get_gpu_cper_entries"} {
		t.Run(function, func(t *testing.T) {
			t.Parallel() // each waits for startPatience
			tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X})
			fake := amdFake(t, tree, 2601, "26 5 0")
			fake.Set(t, "amdsmi_get_gpu_cper_entries", "ok")
			fake.Set(t, function, "late")
			s := withAMD(t, tree, fake)
			t.Cleanup(func() { fake.Release(t) }) // before Close
			s.sample()
			s.want(0, "DCGM_FI_DEV_GPU_UTIL", "", float64(tree.GPUs[0].State.Util))
			s.want(0, "amd_gpu_cper_records", "severity=fatal", nan)
			if got, want := s.reason("amd_gpu_cper_records"), "blank: AMD SMI has not started, has not answered in time"; !strings.HasPrefix(got, want) {
				t.Errorf("reason %q, want %q", got, want)
			}
			fake.Release(t)
			eventually.True(t, "records after the library has answered", func() bool {
				s.sample()
				v, _ := s.value(uuidOf(tree.GPUs[0]), "amd_gpu_cper_records", "severity=fatal")
				return v == 0
			})
		})
	}
}

// TestAMDSilence checks that a row becomes invalid after three turns.
func TestAMDSilence(t *testing.T) {
	g := &addedGPU{all: &added{every: 30 * time.Second}}
	now := time.Now()
	testkit.ErrorIf(t, g.row(now) != nil, "a row before the first")
	g.latest.Store(&addedRow{at: now})
	testkit.ErrorIf(t, g.row(now.Add(90*time.Second)) == nil, "no row after three turns")
	testkit.ErrorIf(t, g.row(now.Add(96*time.Second)) != nil, "a row that is older than three turns")
}

// TestAMDStartFails checks that a library whose start failed is started again, and that a library that does not list a GPU
// adds nothing to it.
func TestAMDStartFails(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X})
	fake := amdFake(t, tree, 2601, "26 5 0")
	fake.Set(t, "amdsmi_init", "status 6")
	s := withAMD(t, tree, fake)
	s.sample()
	s.want(0, "DCGM_FI_DEV_GPU_UTIL", "", float64(tree.GPUs[0].State.Util))
	s.want(0, "amd_gpu_memory_bus_width_bits", "", absent)

	fake = amdFake(t, tree, 2601, "26 5 0")
	fake.Set(t, "amdsmi_get_gpu_device_bdf.0", "ok 0")                    // as without DRM
	fake.Set(t, "amdsmi_get_processor_handles", "ok 4000000000")          // more than there are
	fake.Set(t, "amdsmi_get_gpu_device_bdf.2", "ok 18446744073709551615") // no address
	s = withAMD(t, tree, fake)
	s.sample()
	s.want(0, "amd_gpu_memory_bus_width_bits", "", absent)
	s.want(1, "amd_gpu_memory_bus_width_bits", "", 8192)

	fake = amdFake(t, tree, 2601, "26 5 0")
	fake.Set(t, "amdsmi_get_gpu_device_bdf", "status 6")
	for i, id := range []string{"ok 0x10004100", "ok 0x4900"} { // the first is a partition
		fake.Unset(t, "amdsmi_get_gpu_device_bdf."+strconv.Itoa(i))
		fake.Set(t, "amdsmi_get_gpu_bdf_id."+strconv.Itoa(i), id)
	}
	s = withAMD(t, tree, fake)
	s.sample()
	s.want(0, "amd_gpu_memory_bus_width_bits", "", absent)
	s.want(1, "amd_gpu_memory_bus_width_bits", "", 8192)
}

// TestAMDSuspended checks that a suspended board's records are not read, and that calls are counted.
func TestAMDSuspended(t *testing.T) {
	tree := radeons(t, 2)
	tree.GPUs[1].Set(t, "power/runtime_status", "suspended\n")
	fake := amdFake(t, tree, 2601, "26 5 0")
	fake.Set(t, "amdsmi_get_gpu_cper_entries", "ok")
	s := withAMD(t, tree, fake)
	s.sample()
	s.want(0, "amd_gpu_cper_records", "severity=fatal", 0)
	for _, c := range fake.Calls(t) {
		testkit.ErrorIf(t, c.Function == "amdsmi_get_gpu_cper_entries" && c.Device == 1, "%s was called for GPU %d", c.Function, c.Device)
	}
	calls := s.sources[0].(collector.CallMeter).Calls()
	if !slices.ContainsFunc(calls, func(c collector.CallCost) bool {
		return c.Call == "amdsmi_get_gpu_cper_entries" && c.Count > 0 && c.Time > 0
	}) {
		t.Errorf("calls %v", calls)
	}
}

// TestAMDPartitionsChange checks, with both sources, that a change of a GPU's partition mode during sampling ends the
// session, and that the next one has the new partitions.
func TestAMDPartitionsChange(t *testing.T) {
	for _, source := range []string{SourceSysfs, SourceAMDSMI} {
		t.Run(source, func(t *testing.T) {
			of := rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.8", GPUs: 1}
			before := rocmtest.NewTree(t, of)
			of.Partition = "CPX"
			after := rocmtest.NewTree(t, of)
			fake := amdFake(t, before, 2601, "26 5 0")
			o := Options{Root: before.Root, Source: source, Library: fake.Path}
			s := &simulated{opened: mustOpen(t, o, collectortest.Fields())}
			s.sample()
			before.GPUs[0].Set(t, "gpu_metrics", readFile(t, after.GPUs[0].Path("gpu_metrics")))
			row := slices.Clone(s.rows[0])
			err := s.sources[0].Sample(row, slices.Repeat([]bool{true}, len(row)))
			testkit.ErrorIf(t, !errors.Is(err, collector.ErrColumnsChanged), "Sample = %v, want ErrColumnsChanged", err)
			must(t, errors.Join(os.Rename(before.Sys(), before.Sys()+".before"), os.Rename(after.Sys(), before.Sys())))
			changed, err := s.Rescan(t.Context())
			testkit.ErrorIf(t, !changed || err != nil, "Rescan = %v, %v, want a change", changed, err)
			testkit.Must(t, s.Close()) // a session ends before the next one begins
			next := &simulated{mustOpen(t, o, collectortest.Fields()), before}
			next.sample()
			devices := next.sources[0].Devices()
			testkit.Equal(t, "partitions", 8, len(slices.DeleteFunc(slices.Clone(devices), func(d collector.Device) bool { return d.Level != field.Instance })))
			if source == SourceAMDSMI {
				next.want(0, "amd_gpu_memory_bus_width_bits", "", 8192)
			}
		})
	}
}

// TestConformanceWithAMD runs the whole suite with a library that answers every call.
func TestConformanceWithAMD(t *testing.T) {
	collectortest.Run(t, collectortest.Harness{Name: "rocm", New: func(tb testing.TB) collectortest.Rig {
		tb.Helper()
		of := rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.8"}
		tree := rocmtest.NewTree(tb, of)
		fake := amdFake(tb, tree, 2601, "27 1 0")
		fake.Set(tb, "amdsmi_get_gpu_cper_entries", "ok")
		fake.Set(tb, "amdsmi_get_afids_from_cper", "ok 30")
		for i := range tree.GPUs {
			fake.SetRecords(tb, i, rocmtest.CPER(rocmtest.CPERFatal, time.Now().Add(-15*time.Hour)))
		}
		return rigOn(tb, tree, of, Options{Source: SourceAMDSMI, Library: fake.Path})
	}})
}

// TestRealAMDLibrary runs the installed library over a simulated tree. It must list the GPUs and answer, and must not
// change the values of /sys.
func TestRealAMDLibrary(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.7"})
	library := smitest.NewRealAMD(t, tree).Enter(t)
	s := &simulated{opened: mustOpen(t, Options{Root: tree.Root, Source: SourceAMDSMI, Library: library.Path}, collectortest.Fields())}
	files := mustOpen(t, Options{Root: tree.Root}, collectortest.Fields())
	s.sample()
	files.sample()
	for i := range tree.GPUs {
		for j, c := range files.sources[i].Columns() {
			d, _ := field.ByID(c.Field)
			device := files.sources[i].Devices()[c.Device].ID
			if got, ok := s.value(device, d.Name, text(c.Labels)); !ok || !same(got, files.rows[i][j]) {
				t.Errorf("%s{%s} of %s is %v, %v, want %v as in /sys", d.Name, text(c.Labels), device, got, ok, files.rows[i][j])
			}
		}
	}
	if v := s.added.lib.Version(); v.Major < 24 || !s.added.lib.Lists(tree.GPUs[1].PCI) {
		t.Errorf("version %v; lists the second GPU: %v", v, s.added.lib.Lists(tree.GPUs[1].PCI))
	}
	t.Logf("libamd_smi %v: %v", s.added.lib.Version(), s.sources[0].(collector.CallMeter).Calls())
}
