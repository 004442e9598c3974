package rocm

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	gm "warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

// capture holds published data of a board: numbers of /sys and members of
// gpu_metrics, each with its source, and the values that follow from them. The files
// are in testdata/captures. Members that the source lacks are "not available".
type capture struct {
	name, source string
	boards       []board
	nodes        []string
	sys          map[string]string
	steps        []step
	instances    []string
}

type board struct{ pci, device, compute string }

// step is one file of gpu_metrics and the values expected after it.
type step struct {
	revision string
	size     int
	members  map[string][]uint64
	wants    []wanted
}

type wanted struct {
	name, labels string
	value        string
	growth       bool // since the previous step
}

func captures(t testing.TB) []capture {
	t.Helper()
	files, err := filepath.Glob("testdata/captures/*.txt")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d captures, %v", len(files), err)
	}
	var out []capture
	for _, file := range files {
		out = append(out, readCapture(t, file))
	}
	return out
}

func readCapture(t testing.TB, file string) capture {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	c := capture{name: strings.TrimSuffix(filepath.Base(file), ".txt"), sys: map[string]string{}, steps: []step{{}}}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		s := &c.steps[len(c.steps)-1]
		if member, ok := strings.CutPrefix(line, "  "); ok {
			words := strings.Fields(member)
			s.members[words[0]] = figures(t, words[1:])
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "board", "note":
		case "source":
			c.source = rest
		case "pci":
			c.boards = append(c.boards, board{pci: rest, device: "0x0000"})
		case "device":
			c.boards[len(c.boards)-1].device = rest
		case "compute":
			c.boards[len(c.boards)-1].compute = rest
		case "size":
			s.size = int(figures(t, []string{rest})[0])
		case "sys":
			name, text, _ := strings.Cut(rest, " = ")
			c.sys[name] = strings.ReplaceAll(text, `\n`, "\n")
		case "metrics":
			s.revision, s.members = rest, map[string][]uint64{}
		case "then":
			c.steps = append(c.steps, step{})
		case "node":
			c.nodes = append(c.nodes, rest)
		case "instance":
			c.instances = append(c.instances, rest)
		case "want":
			s.wants = append(s.wants, parseWanted(rest))
		default:
			t.Fatalf("%s: unknown line %q", file, line)
		}
	}
	if c.source == "" {
		t.Fatalf("%s has no source", file)
	}
	return c
}

func parseWanted(text string) wanted {
	name, value, _ := strings.Cut(text, " = ")
	name, growth := strings.CutPrefix(name, "growth ")
	name, labels, _ := strings.Cut(name, "{")
	return wanted{name, strings.TrimSuffix(labels, "}"), value, growth}
}

// figures parses numbers; "-" means "not available".
func figures(t testing.TB, words []string) []uint64 {
	t.Helper()
	var out []uint64
	for _, w := range words {
		v := uint64(math.MaxUint64)
		if w != "-" {
			var err error
			if v, err = strconv.ParseUint(w, 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, v)
	}
	return out
}

// layouts returns the structures of kgd_pp_interface.h, independently of the decoder and of rocmtest: name,
// width in bytes, and length of an array. No source has the contents of xcp_stats, so only its
// size is right.
func layouts() map[string]string {
	const (
		socket = "temperature_hotspot:2 temperature_mem:2 temperature_vrsoc:2 curr_socket_power:2 average_gfx_activity:2 average_umc_activity:2 "
		middle = "energy_accumulator:8 system_clock_counter:8 accumulation_counter:4 prochot_residency_acc:4 ppt_residency_acc:4 " +
			"socket_thm_residency_acc:4 vr_thm_residency_acc:4 hbm_thm_residency_acc:4 gfxclk_lock_status:4 pcie_link_width:2 pcie_link_speed:2 " +
			"xgmi_link_width:2 xgmi_link_speed:2 gfx_activity_acc:4 mem_activity_acc:4 pcie_bandwidth_acc:8 pcie_bandwidth_inst:8 " +
			"pcie_l0_to_recov_count_acc:8 pcie_replay_count_acc:8 pcie_replay_rover_count_acc:8 pcie_nak_sent_count_acc:4 pcie_nak_rcvd_count_acc:4 " +
			"xgmi_read_data_acc:8:8 xgmi_write_data_acc:8:8 "
		clocks = "firmware_timestamp:8 current_gfxclk:2:8 current_socclk:2:4 current_vclk0:2:4 current_dclk0:2:4 current_uclk:2 num_partition:2 "
	)
	return map[string]string{
		"1.3": "temperature_edge:2 temperature_hotspot:2 temperature_mem:2 temperature_vrgfx:2 temperature_vrsoc:2 temperature_vrmem:2 " +
			"average_gfx_activity:2 average_umc_activity:2 average_mm_activity:2 average_socket_power:2 energy_accumulator:8 system_clock_counter:8 " +
			"average_gfxclk_frequency:2 average_socclk_frequency:2 average_uclk_frequency:2 average_vclk0_frequency:2 average_dclk0_frequency:2 " +
			"average_vclk1_frequency:2 average_dclk1_frequency:2 current_gfxclk:2 current_socclk:2 current_uclk:2 current_vclk0:2 current_dclk0:2 " +
			"current_vclk1:2 current_dclk1:2 throttle_status:4 current_fan_speed:2 pcie_link_width:2 pcie_link_speed:2 padding:2 " +
			"gfx_activity_acc:4 mem_activity_acc:4 temperature_hbm:2:4 firmware_timestamp:8 voltage_soc:2 voltage_gfx:2 voltage_mem:2 padding:2 " +
			"indep_throttle_status:8",
		"1.6": socket + middle + clocks + "xcp_stats:8:168 pcie_lc_perf_other_end_recovery:4",
		"1.8": socket + "mem_max_bandwidth:8 " + middle + "xgmi_link_status:2:8 padding:2 " + clocks + "xcp_stats:8:440 pcie_lc_perf_other_end_recovery:4",
		"2.1": "temperature_gfx:2 temperature_soc:2 temperature_core:2:8 temperature_l3:2:2 average_gfx_activity:2 average_mm_activity:2 " +
			"system_clock_counter:8 average_socket_power:2 average_cpu_power:2 average_soc_power:2 average_gfx_power:2 average_core_power:2:8 " +
			"average_gfxclk_frequency:2 average_socclk_frequency:2 average_uclk_frequency:2 average_fclk_frequency:2 average_vclk_frequency:2 " +
			"average_dclk_frequency:2 current_gfxclk:2 current_socclk:2 current_uclk:2 current_fclk:2 current_vclk:2 current_dclk:2 " +
			"current_coreclk:2:8 current_l3clk:2:2 throttle_status:4 fan_pwm:2 padding:2:3",
		"3.0": "temperature_gfx:2 temperature_soc:2 temperature_core:2:16 temperature_skin:2 average_gfx_activity:2 average_vcn_activity:2 " +
			"average_ipu_activity:2:8 average_core_c0_activity:2:16 average_dram_reads:2 average_dram_writes:2 average_ipu_reads:2 average_ipu_writes:2 " +
			"system_clock_counter:8 average_socket_power:4 average_ipu_power:2 average_apu_power:4 average_gfx_power:4 average_dgpu_power:4 " +
			"average_all_core_power:4 average_core_power:2:16 average_sys_power:2 stapm_power_limit:2 current_stapm_power_limit:2 " +
			"average_gfxclk_frequency:2 average_socclk_frequency:2 average_vpeclk_frequency:2 average_ipuclk_frequency:2 average_fclk_frequency:2 " +
			"average_vclk_frequency:2 average_uclk_frequency:2 average_mpipu_frequency:2 current_coreclk:2:16 current_core_maxfreq:2 " +
			"current_gfx_maxfreq:2 throttle_residency_prochot:4 throttle_residency_spl:4 throttle_residency_fppt:4 throttle_residency_sppt:4 " +
			"throttle_residency_thm_core:4 throttle_residency_thm_gfx:4 throttle_residency_thm_soc:4 time_filter_alphavalue:4",
	}
}

// listMembers is revision 1.9's list in smu_v13_0_6_ppt.h: name, number, unit, width,
// number of values.
const listMembers = "temperature_hotspot:0:2:2:1 temperature_mem:1:2:2:1 temperature_vrsoc:2:2:2:1 curr_socket_power:3:3:2:1 " +
	"average_gfx_activity:4:10:2:1 average_umc_activity:5:10:2:1 mem_max_bandwidth:6:8:8:1 energy_accumulator:7:0:8:1 " +
	"system_clock_counter:8:4:8:1 accumulation_counter:9:0:4:1 prochot_residency_acc:10:0:4:1 ppt_residency_acc:11:0:4:1 " +
	"socket_thm_residency_acc:12:0:4:1 vr_thm_residency_acc:13:0:4:1 hbm_thm_residency_acc:14:0:4:1 gfxclk_lock_status:15:0:4:1 " +
	"pcie_link_width:16:0:2:1 pcie_link_speed:17:7:2:1 xgmi_link_width:18:0:2:1 xgmi_link_speed:19:6:2:1 gfx_activity_acc:20:10:4:1 " +
	"mem_activity_acc:21:10:4:1 pcie_bandwidth_acc:22:10:8:1 pcie_bandwidth_inst:23:8:8:1 pcie_l0_to_recov_count_acc:24:0:8:1 " +
	"pcie_replay_count_acc:25:0:8:1 pcie_replay_rover_count_acc:26:0:8:1 pcie_nak_sent_count_acc:27:0:4:1 pcie_nak_rcvd_count_acc:28:0:4:1 " +
	"xgmi_read_data_acc:29:9:8:8 xgmi_write_data_acc:30:9:8:8 xgmi_link_status:31:0:2:8 firmware_timestamp:32:5:8:1 current_gfxclk:33:1:2:8 " +
	"current_socclk:34:1:2:4 current_vclk0:35:1:2:4 current_dclk0:36:1:2:4 current_uclk:37:1:2:1 pcie_lc_perf_other_end_recovery:39:0:4:1 " +
	"gfx_busy_inst:40:10:4:8 jpeg_busy:41:10:2:40 vcn_busy:42:10:2:4 gfx_busy_acc:43:10:8:8 gfx_below_host_limit_ppt_acc:44:0:8:8 " +
	"gfx_below_host_limit_thm_acc:45:0:8:8 gfx_low_utilization_acc:46:0:8:8 gfx_below_host_limit_total_acc:47:0:8:8"

// file encodes the members.
func (s *step) file(t testing.TB) []byte {
	t.Helper()
	var format, content byte
	if _, err := fmt.Sscanf(s.revision, "%d.%d", &format, &content); err != nil {
		t.Fatal(err)
	}
	b := []byte{0, 0, format, content}
	used := 0
	put := func(name string, width, count int) {
		values, ok := s.members[name]
		if ok {
			used++
		}
		for i := range count {
			var word [8]byte
			v := uint64(math.MaxUint64)
			if i < len(values) {
				v = values[i]
			}
			binary.LittleEndian.PutUint64(word[:], v)
			b = append(b, word[:width]...)
		}
	}
	if s.revision == "1.9" {
		members := strings.Fields(listMembers)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(members)))
		for _, m := range members {
			p := strings.Split(m, ":")
			n := figures(t, p[1:])
			kind := map[uint64]uint64{2: 2, 4: 4, 8: 6}[n[2]]
			b = binary.LittleEndian.AppendUint64(b, n[1]<<24|kind<<20|n[0]<<10|n[3])
			put(p[0], int(n[2]), int(n[3]))
		}
	} else {
		for m := range strings.FieldsSeq(layouts()[s.revision]) {
			p := append(strings.Split(m, ":"), "1")
			n := figures(t, p[1:])
			for len(b)%int(n[0]) != 0 {
				b = append(b, 0)
			}
			put(p[0], int(n[0]), int(n[1]))
		}
		for len(b)%8 != 0 {
			b = append(b, 0)
		}
	}
	if used != len(s.members) {
		t.Fatalf("%d of %d members are in revision %s", used, len(s.members), s.revision)
	}
	binary.LittleEndian.PutUint16(b, uint16(len(b)))
	return b
}

// build writes the /sys of a capture.
func (c *capture) build(t testing.TB, root string) {
	t.Helper()
	write := func(name, text string) {
		path := filepath.Join(root, "sys", name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o750))
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	link := func(target, name string) {
		path := filepath.Join(root, "sys", name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o750))
		must(t, os.Symlink(filepath.Join(root, "sys", target), path))
	}
	for i, b := range c.boards {
		dir := "devices/" + b.pci
		card := fmt.Sprintf("card%d", i)
		for name, text := range map[string]string{"vendor": "0x1002", "device": b.device, "uevent": "DRIVER=amdgpu", "current_compute_partition": b.compute} {
			write(dir+"/"+name, text+"\n")
		}
		for name, text := range c.sys {
			write(dir+"/"+strings.Replace(name, "hwmon/", "hwmon/hwmon3/", 1), text+"\n")
		}
		link(dir, "class/drm/"+card+"/device")
		link(dir, "bus/pci/devices/"+b.pci)
	}
	for _, line := range c.nodes {
		words := strings.Fields(line)
		dir := "class/kfd/kfd/topology/nodes/" + words[0]
		write(dir+"/gpu_id", words[1]+"\n")
		write(dir+"/properties", strings.ReplaceAll(strings.Join(words[3:], "\n"), "=", " ")+"\n")
		write(dir+"/mem_banks/0/properties", "heap_type 1\nsize_in_bytes "+words[2]+"\n")
	}
}

func (s *step) write(t testing.TB, root, pci string) {
	t.Helper()
	if s.revision == "" {
		return
	}
	b := s.file(t)
	if s.size != 0 && len(b) != s.size {
		t.Errorf("revision %s has %d bytes, the source says %d", s.revision, len(b), s.size)
	}
	must(t, os.WriteFile(filepath.Join(root, "sys/devices", pci, "gpu_metrics"), b, 0o600))
}

// TestCaptures checks that published numbers give the expected values.
func TestCaptures(t *testing.T) {
	for _, c := range captures(t) {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			c.build(t, root)
			c.steps[0].write(t, root, c.boards[0].pci)
			o := mustOpen(t, Options{Root: root, Source: SourceSysfs}, collectortest.Fields())
			c.checkInstances(t, o)
			device := o.sources[0].Devices()[0].ID
			before := map[string]float64{}
			for i := range c.steps {
				c.steps[i].write(t, root, c.boards[0].pci)
				o.sample()
				for _, w := range c.steps[i].wants {
					w.check(t, o, device, before)
				}
				for _, w := range c.steps[len(c.steps)-1].wants {
					before[w.name+w.labels], _ = o.value(device, w.name, w.labels)
				}
			}
		})
	}
}

func (w *wanted) check(t *testing.T, o *opened, device string, before map[string]float64) {
	t.Helper()
	got, ok := o.value(device, w.name, w.labels)
	if !ok {
		got = math.NaN()
	}
	if w.growth {
		got -= before[w.name+w.labels]
	}
	switch w.value {
	case "none":
		if !math.IsNaN(got) {
			t.Errorf("%s{%s} = %v, want no value", w.name, w.labels, got)
		}
		return
	case "implausible": // the session drops it
		if d, _, ok := field.ByName(w.name); !ok || got <= d.Max {
			t.Errorf("%s{%s} = %v, want what is out of the field's range", w.name, w.labels, got)
		}
		return
	}
	want, err := strconv.ParseFloat(w.value, 64)
	must(t, err)
	if !(math.Abs(got-want) <= 1e-9*math.Abs(want)) {
		t.Errorf("%s{%s} = %v, want %v", w.name, w.labels, got, want)
	}
}

// checkInstances compares the partitions: address, number, render node, compute units.
func (c *capture) checkInstances(t *testing.T, o *opened) {
	t.Helper()
	var got []string
	for _, s := range o.sources {
		g := s.(*source).gpu
		for _, i := range g.Instances {
			if len(c.instances) > 0 {
				got = append(got, fmt.Sprintf("%s %d %s %d", g.PCI, i.ID, i.Render, i.Units))
			}
		}
	}
	want := slices.Clone(c.instances)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
}

// TestCapturesCut checks that a file cut at any byte decodes to nothing.
func TestCapturesCut(t *testing.T) {
	d, m := gm.New(), new(gm.Metrics)
	for _, c := range captures(t) {
		for i := range c.steps {
			if c.steps[i].revision == "" {
				continue
			}
			file := c.steps[i].file(t)
			if err := d.Decode(file, m); err != nil || m.Unknown() != 0 {
				t.Fatalf("%s: %v, %d attributes unknown", c.name, err, m.Unknown())
			}
			for n := range file {
				if err := d.Decode(file[:n], m); err == nil || m.Has(gm.TemperatureHotspot) || m.Has(gm.TemperatureGfx) {
					t.Fatalf("%s: decoded the first %d of %d bytes: %v", c.name, n, len(file), err)
				}
				if n < 4 || n == 384 && c.steps[i].revision == "1.6" { // the first form of 1.6
					continue
				}
				short := slices.Clone(file[:n]) // and a header that says so
				binary.LittleEndian.PutUint16(short, uint16(n))
				if err := d.Decode(short, m); err == nil {
					t.Fatalf("%s: decoded %d of %d bytes", c.name, n, len(file))
				}
			}
		}
	}
}
