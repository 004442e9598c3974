package rocmtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// build creates all files of the GPU.
func (g *GPU) build() error {
	t, d := g.tree, g.dir()
	for _, i := range g.Instances {
		if err := g.nodes(i); err != nil {
			return err
		}
	}
	hwmon := fmt.Sprintf("hwmon/hwmon%d", 40+g.Index)
	for _, l := range []struct{ target, name string }{
		{d, "bus/pci/devices/" + g.PCI},
		{d, "bus/pci/drivers/amdgpu/" + g.PCI},
		{"bus/pci/drivers/amdgpu", d + "/driver"},
		{d + "/" + hwmon, "class/" + hwmon},
		{d, d + "/" + hwmon + "/device"},
	} {
		if err := t.link(l.target, l.name); err != nil {
			return err
		}
	}
	for key, text := range g.fixed() {
		if g.pinned[key] {
			continue
		}
		if err := t.put(d+"/"+g.real(key), strings.Split(text, "\n")...); err != nil {
			return err
		}
	}
	return g.write()
}

// nodes creates the card, the render node and the KFD node of an instance.
func (g *GPU) nodes(i Instance) error {
	t, d := g.tree, g.dir()
	if i.Name != "" {
		d = "devices/platform/" + i.Name
		if err := t.put(d+"/uevent", "DRIVER=amdgpu_xcp", "MODALIAS=platform:amdgpu_xcp"); err != nil {
			return err
		}
	}
	minor := func(name, prefix string) string { return "226:" + strings.TrimPrefix(name, prefix) }
	for name, dev := range map[string]string{i.Card: minor(i.Card, "card"), i.Render: minor(i.Render, "renderD")} {
		if err := t.put(d+"/drm/"+name+"/dev", dev); err != nil {
			return err
		}
		if err := t.link(d, d+"/drm/"+name+"/device"); err != nil {
			return err
		}
		if err := t.link(d+"/drm/"+name, "class/drm/"+name); err != nil {
			return err
		}
	}
	if t.o.NoKFD {
		return nil
	}
	return g.kfdNode(i)
}

func (g *GPU) kfdNode(i Instance) error {
	t, m, n := g.tree, g.spec, len(g.Instances)
	location := (0x41 + g.Index*8) << 8
	if n > 1 {
		location |= i.Index << 28 // since Linux 6.5 the partition is in the upper bits
	}
	minor, _ := strings.CutPrefix(i.Render, "renderD")
	hive := "0"
	if m.xgmi {
		hive = "7312645201374019923"
	}
	for _, links := range []string{"io_links", "p2p_links"} { // ROCm SMI crashes where io_links is missing
		if err := os.MkdirAll(t.Path(node(i.Node, links)), 0o750); err != nil {
			return err
		}
	}
	for name, lines := range map[string][]string{
		"gpu_id": {strconv.FormatUint(i.KFD, 10)},
		"name":   {"ip discovery"},
		"properties": {
			"cpu_cores_count 0", "simd_count " + strconv.Itoa(m.cus*m.simdPerCU/n), "mem_banks_count 1",
			"caches_count 206", "io_links_count 0", "max_waves_per_simd 8", "lds_size_in_kb 64",
			"wave_front_size 64", "array_count " + strconv.Itoa(m.arrays/n), "simd_arrays_per_engine 1",
			"cu_per_simd_array " + strconv.Itoa(m.cuPerArray), "simd_per_cu " + strconv.Itoa(m.simdPerCU),
			"gfx_target_version " + strconv.Itoa(m.gfxTarget), "vendor_id 4098", "device_id " + strconv.Itoa(m.device),
			"location_id " + strconv.Itoa(location), "domain 0", "drm_render_minor " + minor, "hive_id " + hive,
			"num_sdma_engines 2", "num_sdma_xgmi_engines 3", "num_cp_queues 24", "max_engine_clk_fcompute " + strconv.FormatUint(m.sclkHi, 10),
			"local_mem_size 0", "fw_version 165", "capability 746708608", "debug_prop 1495", "sdma_fw_version 20",
			"unique_id " + strconv.FormatUint(g.UniqueID, 10), "num_xcc " + strconv.Itoa(max(m.xccs/n, 1)),
			"max_engine_clk_ccompute 3700",
		},
		"mem_banks/0/properties": {
			"heap_type 1", "size_in_bytes " + strconv.FormatUint(m.vram/uint64(n), 10), "flags 0", "width 8192",
			"mem_clk_max " + strconv.FormatUint(m.mclkHi, 10),
		},
	} {
		if err := t.put(node(i.Node, name), lines...); err != nil {
			return err
		}
	}
	return nil
}

// fixed returns the files that do not change while the node runs.
func (g *GPU) fixed() map[string]string {
	m, t := g.spec, g.tree
	num := func(v uint64) string { return strconv.FormatUint(v, 10) }
	f := map[string]string{
		"uevent": fmt.Sprintf("DRIVER=amdgpu\nPCI_CLASS=%X\nPCI_ID=1002:%04X\nPCI_SUBSYS_ID=1002:%04X\nPCI_SLOT_NAME=%s",
			m.class, m.device, m.subdev, g.PCI),
		"vendor": "0x1002", "device": fmt.Sprintf("%#x", m.device), "class": fmt.Sprintf("%#06x", m.class),
		"subsystem_vendor": "0x1002", "subsystem_device": fmt.Sprintf("%#x", m.subdev), "revision": "0x00",
		"vbios_version": m.vbios, "product_name": m.name, "product_number": m.sku, "serial_number": g.Serial,
		"unique_id": fmt.Sprintf("%016x", g.UniqueID), "numa_node": strconv.Itoa(g.numa()),
		"current_link_speed": m.speed, "current_link_width": strconv.Itoa(m.lanes),
		"max_link_speed": m.speed, "max_link_width": strconv.Itoa(m.lanes),
		"power_dpm_force_performance_level": "auto", "power/runtime_status": "active", "power/control": "auto",
		"pp_dpm_fclk": "0: 400Mhz\n1: 1400Mhz *", "pp_dpm_socclk": "0: 666Mhz\n1: 1090Mhz *",
		"pp_dpm_vclk": "0: 29Mhz *\n1: 1200Mhz", "pp_dpm_dclk": "0: 22Mhz *\n1: 1000Mhz",
		"pp_dpm_pcie":         "0: 2.5GT/s, x1\n1: " + strings.TrimSuffix(m.speed, " GT/s PCIe") + "GT/s, x16 *",
		"mem_info_vram_total": num(m.vram), "mem_info_vis_vram_total": num(m.vram), "mem_info_gtt_total": num(m.gtt),
		"mem_info_vram_vendor": "hynix",
		"hwmon/name":           "amdgpu", "hwmon/in0_label": "vddgfx", "hwmon/freq1_label": "sclk", "hwmon/freq2_label": "mclk",
		"hwmon/power1_label": "PPT", "hwmon/power1_cap": num(m.capWatts * 1e6), "hwmon/power1_cap_max": num(m.capWatts * 1e6),
		"hwmon/power1_cap_min": "0", "hwmon/power1_cap_default": num(m.capWatts * 1e6),
	}
	if m.fan {
		f["hwmon/pwm1_max"], f["hwmon/pwm1_min"], f["hwmon/pwm1_enable"] = "255", "0", "2"
	}
	if m.apu {
		f["hwmon/in1_label"], f["hwmon/in1_input"] = "vddnb", "900"
	}
	for _, s := range m.sensors {
		f[fmt.Sprintf("hwmon/temp%d_label", s.n)] = s.label
		f[fmt.Sprintf("hwmon/temp%d_crit", s.n)] = "100000"
		f[fmt.Sprintf("hwmon/temp%d_crit_hyst", s.n)] = "-273150"
		f[fmt.Sprintf("hwmon/temp%d_emergency", s.n)] = "105000"
	}
	if m.name == "" { // a board without inventory memory
		for _, k := range []string{"product_name", "product_number", "serial_number", "unique_id"} {
			delete(f, k)
		}
	}
	if m.xgmi {
		f["xgmi_error"] = "0" // on hardware a read clears it
		f["xgmi_hive_info/xgmi_hive_id"] = "7312645201374019923"
		f["xgmi_device_id"] = fmt.Sprintf("%016x", g.UniqueID)
	}
	if len(m.partitions) > 0 {
		f["current_compute_partition"] = or(t.o.Partition, "SPX")
		f["available_compute_partition"] = strings.Join(m.partitions, ", ")
		f["current_memory_partition"] = or(t.o.Memory, "NPS1")
		f["available_memory_partition"] = strings.Join(m.memoryModes, ", ")
	}
	if m.ras {
		f["ras/features"] = "feature mask: 0x1fff"
		for _, b := range []string{"sdma", "gfx", "mmhub", "pcie_bif", "hdp", "xgmi_wafl"} {
			f["ras/"+b+"_err_count"] = "ue: 0\nce: 0"
		}
		f["ras/gpu_vram_bad_pages"] = "0x00001a2b : 0x00001000 : R \n0x00003c4d : 0x00001000 : P "
	}
	return f
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// numa returns the GPU's NUMA node, which is the nearest processor.
func (g *GPU) numa() int { return g.Index * processors / len(g.tree.GPUs) }

// node returns a path in the directory of a KFD node.
func node(n int, path ...string) string {
	return filepath.Join(append([]string{"devices/virtual/kfd/kfd/topology/nodes", strconv.Itoa(n)}, path...)...)
}
