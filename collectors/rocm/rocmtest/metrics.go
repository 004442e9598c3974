package rocmtest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The structures of kgd_pp_interface.h (drivers/gpu/drm/amd/include) as members "name:bytes" or "name:bytes:length". They do
// not come from the decoder's tables, so that each checks the other.
const (
	sixTemperatures = "temperature_edge:2 temperature_hotspot:2 temperature_mem:2 temperature_vrgfx:2 temperature_vrsoc:2 temperature_vrmem:2 "
	fourActivities  = "average_gfx_activity:2 average_umc_activity:2 average_mm_activity:2 average_socket_power:2 "
	boardClocks     = "average_gfxclk_frequency:2 average_socclk_frequency:2 average_uclk_frequency:2 average_vclk0_frequency:2 " +
		"average_dclk0_frequency:2 average_vclk1_frequency:2 average_dclk1_frequency:2 current_gfxclk:2 current_socclk:2 current_uclk:2 " +
		"current_vclk0:2 current_dclk0:2 current_vclk1:2 current_dclk1:2 throttle_status:4 current_fan_speed:2 "
	version11 = sixTemperatures + fourActivities + "energy_accumulator:8 system_clock_counter:8 " + boardClocks +
		"pcie_link_width:2 pcie_link_speed:2 padding:2 gfx_activity_acc:4 mem_activity_acc:4 temperature_hbm:2:4 "
	version12 = version11 + "firmware_timestamp:8 "

	socket      = "temperature_hotspot:2 temperature_mem:2 temperature_vrsoc:2 curr_socket_power:2 average_gfx_activity:2 average_umc_activity:2 "
	energyTime  = "energy_accumulator:8 system_clock_counter:8 "
	residencies = "accumulation_counter:4 prochot_residency_acc:4 ppt_residency_acc:4 socket_thm_residency_acc:4 vr_thm_residency_acc:4 " +
		"hbm_thm_residency_acc:4 gfxclk_lock_status:4 "
	busLinks = "pcie_link_width:2 pcie_link_speed:2 xgmi_link_width:2 xgmi_link_speed:2 gfx_activity_acc:4 mem_activity_acc:4 " +
		"pcie_bandwidth_acc:8 pcie_bandwidth_inst:8 pcie_l0_to_recov_count_acc:8 pcie_replay_count_acc:8 pcie_replay_rover_count_acc:8 "
	naks         = "pcie_nak_sent_count_acc:4 pcie_nak_rcvd_count_acc:4 "
	xgmi         = "xgmi_read_data_acc:8:8 xgmi_write_data_acc:8:8 "
	socketClocks = "firmware_timestamp:8 current_gfxclk:2:8 current_socclk:2:4 current_vclk0:2:4 current_dclk0:2:4 current_uclk:2 "
	version14    = energyTime + "throttle_status:4 gfxclk_lock_status:4 " + busLinks
	version16    = energyTime + residencies + busLinks + naks + xgmi

	fanless   = "temperature_gfx:2 temperature_soc:2 temperature_core:2:8 temperature_l3:2:2 average_gfx_activity:2 average_mm_activity:2 "
	apuClocks = "average_socket_power:2 average_cpu_power:2 average_soc_power:2 average_gfx_power:2 average_core_power:2:8 " +
		"average_gfxclk_frequency:2 average_socclk_frequency:2 average_uclk_frequency:2 average_fclk_frequency:2 average_vclk_frequency:2 " +
		"average_dclk_frequency:2 current_gfxclk:2 current_socclk:2 current_uclk:2 current_fclk:2 current_vclk:2 current_dclk:2 " +
		"current_coreclk:2:8 current_l3clk:2:2 throttle_status:4 fan_pwm:2 padding:2"
	version21 = fanless + "system_clock_counter:8 " + apuClocks + ":3 "
	version22 = version21 + "indep_throttle_status:8 "
	version23 = version22 + "average_temperature_gfx:2 average_temperature_soc:2 average_temperature_core:2:8 average_temperature_l3:2:2 "
)

// partitions returns the structures of eight compute partitions, which begin at multiples of eight bytes.
func partitions(members string) (out string) {
	for i := range 8 {
		for m := range strings.FieldsSeq(members) {
			out += fmt.Sprintf("xcp%d.%s ", i, m)
		}
	}
	return out
}

// layouts returns the members of each revision that is one structure.
func layouts() map[string]string {
	const (
		xcp16 = "gfx_busy_inst:4:8 jpeg_busy:2:32 vcn_busy:2:4 gfx_busy_acc:8:8 "
		xcp18 = "gfx_busy_inst:4:8 jpeg_busy:2:40 vcn_busy:2:4 gfx_busy_acc:8:8 gfx_below_host_limit_ppt_acc:8:8 " +
			"gfx_below_host_limit_thm_acc:8:8 gfx_low_utilization_acc:8:8 gfx_below_host_limit_total_acc:8:8 "
		links   = "xgmi_link_status:2:8 padding:2 "
		divided = socketClocks + "num_partition:2 "
		end     = "pcie_lc_perf_other_end_recovery:4 "
	)
	return map[string]string{
		"1.0": "system_clock_counter:8 " + sixTemperatures + fourActivities + "energy_accumulator:4 " + boardClocks +
			"pcie_link_width:1 pcie_link_speed:1 ",
		"1.1": version11, "1.2": version12,
		"1.3": version12 + "voltage_soc:2 voltage_gfx:2 voltage_mem:2 padding:2 indep_throttle_status:8 ",
		"1.4": socket + "vcn_activity:2:4 " + version14 + xgmi + socketClocks + "padding:2",
		"1.5": socket + "vcn_activity:2:4 jpeg_activity:2:32 " + version14 + naks + xgmi + socketClocks + "padding:2",
		"1.6": socket + version16 + divided + partitions(xcp16) + end,
		"1.7": socket + "mem_max_bandwidth:8 " + version16 + links + divided + partitions(xcp16+"gfx_below_host_limit_acc:8:8 ") + end,
		"1.8": socket + "mem_max_bandwidth:8 " + version16 + links + divided + partitions(xcp18) + end,
		"2.0": "system_clock_counter:8 " + fanless + apuClocks, "2.1": version21, "2.2": version22, "2.3": version23,
		"2.4": version23 + "average_cpu_voltage:2 average_soc_voltage:2 average_gfx_voltage:2 " +
			"average_cpu_current:2 average_soc_current:2 average_gfx_current:2 ",
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

// Attributes of revision 1.9, SMU_13_0_6_METRICS_FIELDS in smu_v13_0_6_ppt.h, and of a partition's file,
// SMU_13_0_6_PARTITION_METRICS_FIELDS with two that were added later: name, number, unit, bytes, length.
const (
	engines = "gfx_busy_inst:40:10:4:8 jpeg_busy:41:10:2:40 vcn_busy:42:10:2:4 gfx_busy_acc:43:10:8:8 gfx_below_host_limit_ppt_acc:44:0:8:8 " +
		"gfx_below_host_limit_thm_acc:45:0:8:8 gfx_low_utilization_acc:46:0:8:8 gfx_below_host_limit_total_acc:47:0:8:8 "
	clocks  = "current_gfxclk:33:1:2:8 current_socclk:34:1:2:4 current_vclk0:35:1:2:4 current_dclk0:36:1:2:4 current_uclk:37:1:2:1 "
	list1_9 = "temperature_hotspot:0:2:2:1 temperature_mem:1:2:2:1 temperature_vrsoc:2:2:2:1 curr_socket_power:3:3:2:1 " +
		"average_gfx_activity:4:10:2:1 average_umc_activity:5:10:2:1 mem_max_bandwidth:6:8:8:1 energy_accumulator:7:0:8:1 " +
		"system_clock_counter:8:4:8:1 accumulation_counter:9:0:4:1 prochot_residency_acc:10:0:4:1 ppt_residency_acc:11:0:4:1 " +
		"socket_thm_residency_acc:12:0:4:1 vr_thm_residency_acc:13:0:4:1 hbm_thm_residency_acc:14:0:4:1 gfxclk_lock_status:15:0:4:1 " +
		"pcie_link_width:16:0:2:1 pcie_link_speed:17:7:2:1 xgmi_link_width:18:0:2:1 xgmi_link_speed:19:6:2:1 gfx_activity_acc:20:10:4:1 " +
		"mem_activity_acc:21:10:4:1 pcie_bandwidth_acc:22:10:8:1 pcie_bandwidth_inst:23:8:8:1 pcie_l0_to_recov_count_acc:24:0:8:1 " +
		"pcie_replay_count_acc:25:0:8:1 pcie_replay_rover_count_acc:26:0:8:1 pcie_nak_sent_count_acc:27:0:4:1 pcie_nak_rcvd_count_acc:28:0:4:1 " +
		"xgmi_read_data_acc:29:9:8:8 xgmi_write_data_acc:30:9:8:8 xgmi_link_status:31:0:2:8 firmware_timestamp:32:5:8:1 " +
		clocks + "pcie_lc_perf_other_end_recovery:39:0:4:1 " + engines
	partition1_1 = clocks + engines + "accumulation_counter:9:0:8:1 firmware_timestamp:32:5:8:1"
)

// lists returns the lists of revision 1.9: Linux 6.19's for SMU 13.0.6; that after "drm/amd/pm: update smu_v13_0_6 acc gpu metrics"
// (f96e76c031cb), with wider sums that are no percentages any more; and what SMU_15_0_8_METRICS_FIELDS of smu_v15_0_8_ppt.h
// changes of it: sums of links, arrays per die, and sensors of more dies.
func lists() map[string]string {
	wide := strings.NewReplacer(":9:0:4:1", ":9:0:8:1", ":10:0:4:1", ":10:0:8:1", ":11:0:4:1", ":11:0:8:1", ":12:0:4:1", ":12:0:8:1", ":13:0:4:1", ":13:0:8:1",
		":14:0:4:1", ":14:0:8:1", ":20:10:4:1", ":20:0:8:1", ":21:10:4:1", ":21:0:8:1", ":22:10:8:1", ":22:0:8:1", ":27:0:4:1", ":27:0:8:1", ":28:0:4:1", ":28:0:8:1",
		":39:0:4:1", ":39:0:8:1", ":43:10:8:8", ":43:0:8:8").Replace(list1_9)
	smu15 := strings.NewReplacer("pcie_bandwidth_acc:22:0:8:1", "pcie_bandwidth_acc:22:0:8:2", "inst:23:8:8:1", "inst_mid:23:8:8:2", "read_data_acc:29:9:8:8", "read_data_sum:29:9:8:1",
		"write_data_acc:30:9:8:8", "write_data_sum:30:9:8:1", ":34:1:2:4", ":34:1:2:2", ":37:1:2:1", ":37:1:2:2").Replace(wide) +
		" temperature_hbm_12:48:2:2:12 temperature_mid:49:2:2:2 temperature_aid:50:2:2:2 temperature_xcd:51:2:2:8"
	return map[string]string{"1.9": list1_9, "1.9, wide": wide, "1.9, SMU 15": smu15}
}

// Members holds the values of a file by name. A member or element without a value is "not available".
type Members map[string][]uint64

// Encode returns the gpu_metrics file of a revision such as "1.3" and the number of members that it has a place for.
// Members lie as a C compiler puts them; the header has the true size.
func Encode(revision string, values Members) (file []byte, used int, err error) {
	if list := lists()[revision]; list != "" {
		file, used = encodeList([]byte{0, 0, 1, 9}, list, values)
		return file, used, nil
	}
	layout := layouts()[revision]
	var format, content byte
	if _, err := fmt.Sscanf(revision, "%d.%d", &format, &content); err != nil || layout == "" {
		return nil, 0, fmt.Errorf("unknown revision %q", revision)
	}
	file = []byte{0, 0, format, content}
	for m := range strings.FieldsSeq(layout) {
		name, sizes := parse(m)
		width, count := sizes[0], 1
		if len(sizes) > 1 {
			count = sizes[1]
		}
		align := width
		if strings.HasPrefix(name, "xcp") && strings.HasSuffix(name, ".gfx_busy_inst") {
			align = 8 // the partition's widest member
		}
		file = append(file, make([]byte, -len(file)&(align-1))...)
		file = appendValues(file, width, count, values[name], &used)
	}
	file = append(file, make([]byte, -len(file)&7)...) // every revision has a member of eight bytes
	return seal(file), used, nil
}

// parse splits "name:1:2" into the name and its numbers.
func parse(member string) (name string, numbers []int) {
	words := strings.Split(member, ":")
	for _, w := range words[1:] {
		n, err := strconv.Atoi(w)
		if err != nil {
			panic(err) // of a constant
		}
		numbers = append(numbers, n)
	}
	return words[0], numbers
}

func appendValues(file []byte, width, count int, values []uint64, used *int) []byte {
	if values != nil {
		*used++
	}
	for i := range count {
		word := binary.LittleEndian.AppendUint64(nil, na)
		if i < len(values) {
			binary.LittleEndian.PutUint64(word, values[i])
		}
		file = append(file, word[:width]...)
	}
	return file
}

// encodeList returns a file of attributes, without alignment.
func encodeList(header []byte, layout string, values Members) (file []byte, used int) {
	members := strings.Fields(layout)
	file = binary.LittleEndian.AppendUint32(header, uint32(len(members)))
	for _, m := range members {
		name, n := parse(m)
		kind := map[int]int{2: 2, 4: 4, 8: 6}[n[2]]
		file = binary.LittleEndian.AppendUint64(file, uint64(n[1]<<24|kind<<20|n[0]<<10|n[3]))
		file = appendValues(file, n[2], n[3], values[name], &used)
	}
	return seal(file), used
}

// seal writes the size into the header.
func seal(file []byte) []byte {
	binary.LittleEndian.PutUint16(file, uint16(len(file)))
	return file
}

// na means "not available" in any width.
const na = ^uint64(0)

// firstOf returns eight values: v for the first k, na for the others.
func firstOf(k int, v uint64) []uint64 {
	return append(slices.Repeat([]uint64{v}, k), slices.Repeat([]uint64{na}, 8-k)...)
}

// members returns the values of a GPU's file. Only the first die of a package reports power and energy.
func (g *GPU) members() Members {
	m, s := g.spec, g.State
	if g.Index%m.dies != 0 {
		s.Watts, s.Energy = 0, 0
	}
	out := Members{}
	set := func(v uint64, names ...string) {
		for _, n := range names {
			out[n] = slices.Repeat([]uint64{v}, 8)
		}
	}
	for name, v := range map[string]uint64{
		"temperature_edge": s.EdgeC, "temperature_hotspot": s.JunctionC, "temperature_mem": s.MemC,
		"temperature_vrgfx": 45, "temperature_vrsoc": s.VRSocC, "temperature_vrmem": 46, // °C
		"average_gfx_activity": s.Util, "average_umc_activity": s.MemUtil, "average_mm_activity": s.MMUtil,
		"average_socket_power": s.Watts, "curr_socket_power": s.Watts,
		"energy_accumulator": s.Energy, "system_clock_counter": s.Nanos, "firmware_timestamp": s.Nanos / 10,
		"gfx_activity_acc": s.GfxAcc, "mem_activity_acc": s.MemAcc, "throttle_status": s.Throttle, "indep_throttle_status": s.Throttle,
		"gfxclk_lock_status": 0, "voltage_gfx": s.MilliVolts, "pcie_link_width": uint64(m.lanes), "pcie_link_speed": m.decigt,
		"xgmi_link_width": 16, "xgmi_link_speed": 32, "pcie_bandwidth_acc": s.PCIeAcc, "pcie_bandwidth_inst": s.PCIeMbits,
		"pcie_l0_to_recov_count_acc": s.Recoveries, "pcie_replay_count_acc": s.Replays, "pcie_replay_rover_count_acc": s.Rollovers,
		"pcie_nak_sent_count_acc": s.NAKsSent, "pcie_nak_rcvd_count_acc": s.NAKsReceived, "pcie_lc_perf_other_end_recovery": s.Recoveries,
		"mem_max_bandwidth": 5300, "accumulation_counter": s.Cycles, "prochot_residency_acc": s.Prochot, "ppt_residency_acc": s.PPT,
		"socket_thm_residency_acc": s.SocketThermal, "vr_thm_residency_acc": s.VRThermal, "hbm_thm_residency_acc": s.HBMThermal,
		"num_partition": uint64(len(g.Instances)),
	} {
		set(v, name)
	}
	for i, v := range []uint64{s.SclkMHz, s.SocclkMHz, s.MclkMHz, s.FclkMHz, s.VclkMHz, s.DclkMHz, s.VclkMHz, s.DclkMHz, s.VclkMHz, s.DclkMHz} {
		clock := []string{"gfxclk", "socclk", "uclk", "fclk", "vclk", "dclk", "vclk0", "dclk0", "vclk1", "dclk1"}[i]
		set(v, "average_"+clock+"_frequency", "current_"+clock)
	}
	if m.fan {
		set(s.FanRPM, "current_fan_speed")
	}
	if m.ras {
		out["temperature_hbm"] = s.HBMC[:]
	}
	out["pcie_bandwidth_inst_mid"], out["temperature_hbm_12"] = []uint64{s.PCIeMbits / 2, s.PCIeMbits - s.PCIeMbits/2}, slices.Repeat(s.HBMC[:], 3)
	for i, sums := 0, [2]uint64{}; i < len(s.XGMIRead); i++ {
		sums[0], sums[1] = sums[0]+s.XGMIRead[i], sums[1]+s.XGMIWrite[i]
		out["xgmi_read_data_sum"], out["xgmi_write_data_sum"] = []uint64{sums[0]}, []uint64{sums[1]}
	}
	out["vcn_activity"], out["jpeg_activity"] = s.VCN[:], s.JPEG[:]
	out["xgmi_read_data_acc"], out["xgmi_write_data_acc"], out["xgmi_link_status"] = s.XGMIRead[:], s.XGMIWrite[:], s.XGMIUp[:]
	for name, v := range s.engines(m.xccs) { // the whole GPU's
		out[name] = v
	}
	for i := range g.Instances {
		for name, v := range s.engines(m.xccs / len(g.Instances)) {
			out[fmt.Sprintf("xcp%d.%s", i, name)] = v
		}
	}
	if m.apu { // hundredths of a degree, milliwatts
		set(s.EdgeC*100, "temperature_gfx", "temperature_soc")
		set(s.Watts*1000, "average_socket_power", "average_apu_power")
		set(s.Watts*500, "average_gfx_power")
		set(900, "average_soc_voltage")
		set(s.MilliVolts, "average_gfx_voltage")
		if m.metrics == "2.4" { // hundredths of a percent
			set(s.Util*100, "average_gfx_activity")
		}
	}
	return out
}

// engines returns the values of a partition's engines.
func (s *State) engines(xccs int) Members {
	return Members{
		"gfx_busy_inst": firstOf(xccs, s.Util), "jpeg_busy": s.JPEG[:], "vcn_busy": s.VCN[:], "gfx_busy_acc": firstOf(xccs, s.GfxAcc),
		"gfx_below_host_limit_acc": firstOf(xccs, s.BelowLimit), "gfx_below_host_limit_ppt_acc": firstOf(xccs, s.BelowLimit),
		"gfx_below_host_limit_thm_acc": firstOf(xccs, s.BelowLimit/2), "gfx_low_utilization_acc": firstOf(xccs, s.BelowLimit/4),
		"gfx_below_host_limit_total_acc": firstOf(xccs, s.BelowLimit*3/2),
	}
}
