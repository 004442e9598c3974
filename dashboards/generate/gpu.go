package main

import "fmt"

// Texts that panels show if neither a vendor nor a list provides their data.
const (
	needsRecommended = "Needs the fields of etc/recommended-counters.csv."
	needsHistogram   = "Needs this field as type histogram: etc/recommended-counters.csv."
	noLinks          = "This GPU has no links to others, or the list lacks them."
	noECC            = "This GPU has no ECC, or the list lacks its counters."
)

// gpu returns the dashboard of one GPU: bursts, throttling, links, errors. NVIDIA and AMD GPUs share panels; a quantity
// that one vendor lacks has no line.
func gpu() *builder {
	b := newDashboard("warpgauge-gpu", "GPUs / GPU in depth",
		"One GPU: what happens between two scrapes, what slows it down, its links and errors. A panel without data says why.", instance, gpuIndex, rateStep)
	b.annotate(ofGPUs)
	b.row("Between two scrapes")
	b.heatmap(12, "Utilisation, every sample", "DCGM_FI_DEV_GPU_UTIL_RATIO as type histogram. On NVIDIA's GPUs a sample is a mean over 1/6 s or more: shorter bursts are lower.", "percentunit", buckets("DCGM_FI_DEV_GPU_UTIL_RATIO")).empty(needsHistogram)
	b.heatmap(12, "Power, every sample", "DCGM_FI_DEV_BOARD_POWER_RAW_WATTS as type histogram: the power at each tick, no mean.", "watt", buckets("DCGM_FI_DEV_BOARD_POWER_RAW_WATTS")).empty(needsHistogram)
	b.lines("Utilisation: mean and quantiles", "From the histogram, else from scrapes, which miss what lies between them.", "percentunit",
		query{"mean", mean("DCGM_FI_DEV_GPU_UTIL_RATIO") + ` or avg(gpu:utilization:ratio_mean5m` + sel + `) or avg(avg_over_time(max by (cluster, instance, UUID) (DCGM_FI_DEV_GPU_UTIL` + sel + `)[$__rate_interval:$step]) / 100)`},
		query{"p50", quantile("0.5", "DCGM_FI_DEV_GPU_UTIL_RATIO")},
		query{"p99", quantile("0.99", "DCGM_FI_DEV_GPU_UTIL_RATIO")},
		query{"highest at a scrape", `max(max_over_time(DCGM_FI_DEV_GPU_UTIL` + sel + `[$__rate_interval])) / 100`}).empty("A GPU in MIG mode has no utilisation of its own.")
	b.lines("Power: mean and limit", "The mean is that of the energy counter.", "watt",
		query{"mean", `sum(max by (cluster, instance, UUID) (` + rateOnce("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "") + `)) / 1000`},
		query{"p99", quantile("0.99", "DCGM_FI_DEV_BOARD_POWER_RAW_WATTS")},
		query{"at a scrape", `sum(max by (cluster, instance, UUID) (DCGM_FI_DEV_POWER_USAGE` + sel + `))`},
		query{"limit", `sum(max by (cluster, instance, UUID) (DCGM_FI_DEV_ENFORCED_POWER_LIMIT` + sel + `)) or sum(max by (cluster, instance, UUID) (DCGM_FI_DEV_POWER_MGMT_LIMIT` + sel + `))`})

	b.legend = "right" // one line per quantity
	b.row("What the GPU does")
	b.lines("Units", "Shares of time in which they were busy, and of the compute units of AMD's GPUs that have work.", "percentunit",
		query{"SM " + deviceLegend, byDevice("DCGM_FI_PROF_SM_ACTIVE")},
		query{"tensor " + deviceLegend, byDevice("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")},
		query{"FP64 " + deviceLegend, byDevice("DCGM_FI_PROF_PIPE_FP64_ACTIVE")},
		query{"FP32 " + deviceLegend, byDevice("DCGM_FI_PROF_PIPE_FP32_ACTIVE")},
		query{"FP16 " + deviceLegend, byDevice("DCGM_FI_PROF_PIPE_FP16_ACTIVE")},
		query{"compute units " + deviceLegend, byDevice("amd_gpu_compute_unit_occupancy_ratio")},
		query{"DRAM " + deviceLegend, byDevice("DCGM_FI_PROF_DRAM_ACTIVE")},
		query{"memory controller " + deviceLegend, byDevice("DCGM_FI_DEV_MEM_COPY_UTIL") + ` / 100`})
	b.lines("Engine and occupancy", "Shares of time in which the engine was busy and in which a kernel ran; of the warps that multiprocessors can have.", "percentunit",
		query{"engine " + deviceLegend, byDevice("DCGM_FI_PROF_GR_ENGINE_ACTIVE")},
		query{"kernel " + deviceLegend, byDevice("DCGM_FI_DEV_GPU_UTIL") + ` / 100`},
		query{"occupancy " + deviceLegend, byDevice("DCGM_FI_PROF_SM_OCCUPANCY")})
	b.lines("Video", "", "percent",
		query{"encoder " + deviceLegend, byDevice("DCGM_FI_DEV_ENC_UTIL")}, query{"decoder " + deviceLegend, byDevice("DCGM_FI_DEV_DEC_UTIL")}).empty("This GPU has no video engines.")
	b.lines("Memory", "", "mbytes",
		query{"used " + deviceLegend, byDevice("DCGM_FI_DEV_FB_USED")}, query{"free " + deviceLegend, byDevice("DCGM_FI_DEV_FB_FREE")},
		query{"reserved " + deviceLegend, byDevice("DCGM_FI_DEV_FB_RESERVED")})

	b.row("What slows it down")
	slowed := func(what, counter string) query {
		return query{what + " " + deviceLegend, rateByDevice(counter) + ` / 1e9`}
	}
	b.lines("Time slowed down", "Share of the time; on AMD's GPUs of the firmware's cycles.", "percentunit",
		slowed("power", "DCGM_FI_DEV_POWER_VIOLATION"), slowed("heat", "DCGM_FI_DEV_THERMAL_VIOLATION"),
		slowed("board", "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION"), slowed("reliability", "DCGM_FI_DEV_RELIABILITY_VIOLATION"),
		query{"{{reason}} " + deviceLegend, rateBy(perDevice+`, reason`, `amd_gpu_throttle_residency_total`+sel) + ` / on (` + perDevice + `) group_left () ` +
			rateByDevice("amd_gpu_accumulation_cycles_total")}).empty(needsRecommended)
	held := func(what string, bit int) query {
		return query{what + " " + deviceLegend, fmt.Sprintf(`floor((`+byDevice("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")+` or `+byDevice("DCGM_FI_DEV_CLOCKS_EVENT_REASONS")+`) / %d) %% 2`, bit)}
	}
	b.lines("Clocks held down", "Events in the exporter's window by reason; where the list has the mask of reasons, 1 while one holds.", "short",
		query{"{{clock_event}} " + deviceLegend, orNone(`max by (`+perDevice+`, clock_event) (DCGM_EXP_CLOCK_EVENTS_COUNT`+sel+`)`, "clock_event", `DCGM_EXP_CLOCK_EVENTS_COUNT`+sel)},
		held("power limit", 0x4), held("heat", 0x20), held("heat, by hardware", 0x40), held("brake", 0x80)).empty(needsRecommended)

	b.row("Links")
	b.lines("PCIe", "Data of each direction, or of both together where the GPU has only that.", "Bps",
		query{"sent " + deviceLegend, byDevice("DCGM_FI_PROF_PCIE_TX_BYTES") + ` or ` + byDevice("DCGM_FI_DEV_PCIE_TX_THROUGHPUT") + ` * 1000`},
		query{"received " + deviceLegend, byDevice("DCGM_FI_PROF_PCIE_RX_BYTES") + ` or ` + byDevice("DCGM_FI_DEV_PCIE_RX_THROUGHPUT") + ` * 1000`},
		query{"both " + deviceLegend, byDevice("amd_gpu_pcie_throughput_bytes_per_second")}).
		empty("Boards without profiling need DCGM_FI_DEV_PCIE_TX_THROUGHPUT and …_RX_THROUGHPUT in the list.")
	b.lines("NVLink and XGMI", "All links of a GPU.", "MBs", device("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL")).empty(noLinks)
	b.lines("PCIe replays", "", "cps", query{deviceLegend, rateByDevice("DCGM_FI_DEV_PCIE_REPLAY_COUNTER")})
	b.lines("Errors of NVLink and XGMI", "", "cps",
		query{"CRC flit " + deviceLegend, rateByDevice("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL")},
		query{"CRC data " + deviceLegend, rateByDevice("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL")},
		query{"replay " + deviceLegend, rateByDevice("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL")},
		query{"recovery " + deviceLegend, rateByDevice("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL")},
		query{"XGMI {{severity}} " + deviceLegend, rateBy(perDevice+`, severity`, `amd_gpu_ras_errors_total{block=~"xgmi.*", `+ofGPUs+`}`)}).empty(noLinks)

	b.row("Errors")
	b.table(12, "XIDs in 24 h", xidsMeaning, "short", xidsIn24h(ofGPUs), nodeColumn, gpuColumn, xidColumn, xidTextColumn).empty("None. AMD's GPUs have no XIDs.")
	b.lines("XIDs in the window", "XIDs in the exporter's window, each time counted; faults in the kernel's log since the panel's point before.", "short",
		query{"XID {{xid}} GPU {{gpu}}", orNone(`max by (cluster, job, instance, gpu, xid) (DCGM_EXP_XID_ERRORS_COUNT`+sel+`)`, "xid", `DCGM_EXP_XID_ERRORS_COUNT`+sel)},
		query{"kernel log: {{kind}} GPU {{gpu}}", orNone(`max by (cluster, job, instance, gpu, kind) (increase(warpgauge_kernel_log_events_total`+sel+`[$__rate_interval]))`, "kind", `warpgauge_kernel_log_events_total`+sel)}).
		empty("Needs DCGM_EXP_XID_ERRORS_COUNT in the list. AMD's GPUs have no XIDs.")
	b.lines("Memory rows and pages", "Rows that were replaced; pages that are out of use.", "short",
		query{"uncorrectable " + deviceLegend, byDevice("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS")},
		query{"correctable " + deviceLegend, byDevice("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS")},
		query{"retired pages " + deviceLegend, byDevice("DCGM_FI_DEV_RETIRED_DBE")},
		query{"pending pages " + deviceLegend, byDevice("DCGM_FI_DEV_RETIRED_PENDING")},
		query{"failed " + deviceLegend, byDevice("DCGM_FI_DEV_ROW_REMAP_FAILURE")}).empty(noECC)
	b.lines("ECC errors", "Since the driver was loaded.", "short",
		query{"single-bit " + deviceLegend, byDevice("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL")}, query{"double-bit " + deviceLegend, byDevice("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")}).empty(noECC)
	return b
}
