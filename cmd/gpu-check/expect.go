package main

import (
	"fmt"
	"strings"
)

// expectations lists the changes that a load must cause between the idle page and the
// load's last page.

// least judges that a value is at least so much.
func least(phase string, g gpu, metric string, p page, want float64, why string) result {
	v, ok := p.value(metric, g.uuid)
	out := result{phase: phase, gpu: g.index, metric: metric, tolerance: "≥ " + number(want) + " " + why, verdict: missing}
	if ok {
		out.ours, out.verdict = number(v), pass
		if v < want {
			out.verdict = fail
		}
	}
	return out
}

// expectLoad judges a GPU under a multiplication.
func expectLoad(phase string, k kernel, g gpu, idle, busy page) []result {
	out := []result{least(phase, g, "DCGM_FI_DEV_GPU_UTIL", busy, 90, "under load")}
	if limit, ok := idle.value("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", g.uuid); ok {
		at, _ := idle.value("DCGM_FI_DEV_POWER_USAGE", g.uuid)
		out = append(out, least(phase, g, "DCGM_FI_DEV_POWER_USAGE", busy, at+0.15*limit, "(idle + 15 % of the limit)"))
	}
	if top, ok := idle.value("DCGM_FI_DEV_MAX_SM_CLOCK", g.uuid); ok {
		out = append(out, least(phase, g, "DCGM_FI_DEV_SM_CLOCK", busy, top/2, "(half of the highest)"))
	}
	if gpm, ok := busy.value("DCGM_FI_DEV_GPM_SUPPORT", g.uuid); !ok || gpm == 0 {
		return out // no profiling before Hopper
	}
	out = append(out,
		least(phase, g, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", busy, 0.9, "under load"),
		least(phase, g, "DCGM_FI_PROF_SM_ACTIVE", busy, 0.9, "under load"))
	if k.number == halfKernel.number {
		return append(out, least(phase, g, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", busy, 0.2, "on tensor cores"))
	}
	return append(out, least(phase, g, "DCGM_FI_PROF_PIPE_FP32_ACTIVE", busy, 0.3, "in single precision"))
}

// expectEnergy judges that the energy counter has grown by the mean power, between
// the first and the last page of a phase.
func expectEnergy(phase string, g gpu, rounds []round, seconds float64) (result, bool) {
	const metric, tolerance = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 0.2
	first, last := rounds[0].before, rounds[len(rounds)-1].after
	a, ok := first.value(metric, g.uuid)
	b, also := last.value(metric, g.uuid)
	if !ok || !also {
		return result{}, false
	}
	var sum float64
	for _, r := range rounds {
		p, _ := r.after.value("DCGM_FI_DEV_POWER_USAGE", g.uuid)
		sum += p
	}
	mean, fromEnergy := sum/float64(len(rounds)), (b-a)/1000/seconds
	rel := tolerance + 1.5/seconds // the samples may be a tick away from the scrapes
	out := result{
		phase: phase, gpu: g.index, metric: metric, ours: fmt.Sprintf("%.1f W by its growth", fromEnergy),
		theirs: fmt.Sprintf("%.1f W mean power", mean), tolerance: fmt.Sprintf("± 20 W ± %.0f %%", 100*rel), verdict: pass,
	}
	if d := fromEnergy - mean; d > 20+rel*mean || -d > 20+rel*mean {
		out.verdict = fail
	}
	return out, true
}

// expectTraffic judges that each link's rate is the growth of nvidia-smi's counter
// over the phase.
func expectTraffic(phase string, g gpu, rounds []round) (out []result) {
	first, last := rounds[0], rounds[len(rounds)-1]
	seconds := last.at.Sub(first.at).Seconds()
	if seconds <= 0 {
		return nil
	}
	for _, n := range last.smi[g.uuid].parts(link) {
		of := part{g.uuid, link, n}
		for _, way := range []string{"Tx", "Rx"} {
			metric, name := "DCGM_FI_DEV_NVLINK_"+strings.ToUpper(way)+"_THROUGHPUT_PER_LINK", "Data "+way
			key := "link:" + n + ":" + name
			a, ok := numberOf(first.smi[g.uuid][key])
			b, also := numberOf(last.smi[g.uuid][key])
			if !ok || !also {
				continue
			}
			sum, count := 0.0, 0
			for _, r := range rounds[1:] {
				if v, ok := r.after.valueOf(metric, of, [2]string{}); ok {
					sum, count = sum+v, count+1
				}
			}
			want := (b - a) / seconds / 1000 // in KiB; DCGM calls 1000 of them a megabyte
			r := result{phase: phase, gpu: of.name(g), metric: metric, theirs: number(want) + " by its growth", tolerance: "± 50 ± 30 %", verdict: missing}
			if count > 0 {
				mean := sum / float64(count)
				r.ours, r.verdict = number(mean)+" mean", pass
				if d := mean - want; d > 50+0.3*want || -d > 50+0.3*want {
					r.verdict = fail
				}
			}
			out = append(out, r)
		}
	}
	return out
}

const healthMetric = "DCGM_EXP_GPU_HEALTH_STATUS"

// healthRule maps a value of nvidia-smi to a health watch's 0, 10 or 20, by
// DCGM's rules.
type healthRule struct {
	watch   string
	sources []string
	result  func(v float64) float64
}

// atLeast is a result from a value on.
func atLeast(limit, result float64) func(v float64) float64 {
	return func(v float64) float64 {
		if v >= limit {
			return result
		}
		return 0
	}
}

const unwell, failed = 10, 20

var healthRules = []healthRule{
	{"MEM", []string{"csv:ecc.errors.uncorrected.volatile.total"}, atLeast(1, failed)},
	{"MEM", []string{"csv:remapped_rows.failure", "xml:remapped_rows/remapped_row_failure"}, atLeast(1, failed)},
	{"MEM", []string{"xml:ecc_errors/unrepairable_memory"}, atLeast(1, failed)},
	{"MEM", []string{"csv:retired_pages.pending"}, atLeast(1, unwell)},
	{"MEM", []string{"csv:remapped_rows.uncorrectable", "xml:remapped_rows/remapped_row_unc"}, atLeast(512, unwell)},
	{"INFOROM", []string{"csv:inforom.checksum_validation"}, func(valid float64) float64 { return unwell * (1 - valid) }},
	{"DRIVER", []string{"csv:gpu_recovery_action", "xml:gpu_recovery_action"}, func(action float64) float64 {
		if action == 3 { // drain peers
			return unwell
		}
		return atLeast(1, failed)(action)
	}},
}

// expectHealth checks the health watches whose readings nvidia-smi shows.
func expectHealth(phase string, g gpu, r round) (out []result) {
	worst := map[string]float64{}
	for _, rule := range healthRules {
		said, ok := check{sources: rule.sources}.theirs(r.smi[g.uuid], part{uuid: g.uuid})
		if v, isNumber := numberOf(said); ok && isNumber {
			worst[rule.watch] = max(worst[rule.watch], rule.result(v))
		}
	}
	for _, watch := range []string{"PCIE", "NVLINK", "MEM", "INFOROM", "THERMAL", "POWER", "DRIVER", "ALL"} {
		ours, judged := r.after.health(watch, g.uuid)
		want, known := worst[watch]
		one := result{phase: phase, gpu: g.index, metric: healthMetric + " " + watch, tolerance: "DCGM's rules"}
		one.verdict = presence(judged, known, func() bool { return ours == want })
		if judged {
			one.ours = number(ours)
		}
		if known {
			one.theirs = number(want)
		}
		switch one.verdict {
		case notThere:
			continue
		case oursAlone:
			one.verdict = uncomparing
		}
		out = append(out, one)
	}
	return out
}
