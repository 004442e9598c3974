package main

import "fmt"

// expectations are what a load must show, by comparing its last page with the idle
// one.

// least judges that a value is at least so much.
func least(phase string, g gpu, metric string, p *page, want float64, why string) result {
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
func expectLoad(phase string, k kernel, g gpu, idle, busy *page) []result {
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
