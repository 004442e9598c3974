package rocmtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// write updates the files to the GPU's state, except the files that a test has taken over.
func (g *GPU) write() error {
	if g.gone {
		return nil
	}
	values := g.members()
	b, _, err := Encode(g.spec.metrics, values)
	if err != nil {
		return err
	}
	if !g.taken("gpu_metrics") {
		if err := overwrite(g.Path("gpu_metrics"), b, true); err != nil {
			return err
		}
	}
	if strings.HasPrefix(g.spec.metrics, "1.9") && len(g.Instances) > 1 {
		for _, i := range g.Instances {
			for name, v := range g.State.engines(g.spec.xccs / len(g.Instances)) {
				values[name] = v
			}
			part, _ := encodeList([]byte{0, 0, 1, 1}, partition1_1, values)
			file := g.tree.Path("class/drm/" + i.Render + "/device/xcp/xcp_metrics")
			err := os.MkdirAll(filepath.Dir(file), 0o750)
			if err == nil {
				err = overwrite(file, part, true)
			}
			if err != nil {
				return err
			}
		}
	}
	for key, text := range g.live() {
		if g.taken(key) {
			continue
		}
		if err := overwrite(g.Path(key), []byte(text+"\n"), true); err != nil {
			return err
		}
	}
	return nil
}

// taken reports whether a test or a user's pipe supplies the content of a key's file. Writing to a pipe would wait for a
// reader, or release a reader that must hang.
func (g *GPU) taken(key string) bool {
	if g.pinned[key] {
		return true
	}
	info, err := os.Lstat(g.Path(key))
	return err == nil && !info.Mode().IsRegular()
}

// live returns the changing texts. Only the first die of an MI250X package reports power.
func (g *GPU) live() map[string]string {
	s, m := &g.State, g.spec
	num := func(v uint64) string { return strconv.FormatUint(v, 10) }
	f := map[string]string{
		"gpu_busy_percent":   num(s.Util),
		"mem_info_vram_used": num(s.VRAMUsed), "mem_info_vis_vram_used": num(s.VisVRAMUsed), "mem_info_gtt_used": num(s.GTTUsed),
		"pcie_replay_count": num(s.Replays),
		"pp_dpm_sclk":       fmt.Sprintf("0: %dMhz\n1: %dMhz *\n2: %dMhz", m.sclkLo, s.SclkMHz, m.sclkHi),
		"pp_dpm_mclk":       fmt.Sprintf("0: 400Mhz\n1: %dMhz *", s.MclkMHz),
		"hwmon/in0_input":   num(s.MilliVolts),
		"hwmon/freq1_input": num(s.SclkMHz * 1e6), "hwmon/freq2_input": num(s.MclkMHz * 1e6),
	}
	if !m.apu {
		f["mem_busy_percent"] = num(s.MemUtil)
	}
	if g.Index%m.dies == 0 {
		f["hwmon/"+m.power] = num(s.Watts * 1e6)
	} else {
		f["hwmon/"+m.power] = "0"
	}
	celsius := map[string]uint64{"edge": s.EdgeC, "junction": s.JunctionC, "mem": s.MemC}
	for _, t := range m.sensors {
		f[fmt.Sprintf("hwmon/temp%d_input", t.n)] = num(celsius[t.label] * 1000)
	}
	if m.fan {
		f["hwmon/fan1_input"], f["hwmon/pwm1"] = num(s.FanRPM), num(s.FanPWM)
	}
	if m.pcieBW {
		f["pcie_bw"] = num(s.PCIeSent) + " " + num(s.PCIeReceived) + " 256"
	}
	if m.ras {
		count := "ue: " + num(s.Uncorrectable) + "\nce: " + num(s.Correctable)
		if g.tree.o.Deferred {
			count += "\nde: " + num(s.Deferred)
		}
		f["ras/umc_err_count"] = count
	}
	return f
}
