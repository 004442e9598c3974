package main

import (
	"regexp"
	"strconv"
	"strings"

	"warpgauge/pkg/field"
)

// sel is what every expression about devices selects by.
const sel = `{instance=~"$instance", gpu=~"$gpu"}`

// byDevice is one series per device: where several pods share it each has a copy of
// its series, and the device's own value is the largest of those with its name.
func byDevice(metric string) string {
	return `max by (instance, gpu, GPU_I_ID, GPU_I_PROFILE) (` + metric + sel + `)`
}

// rate is the same for counters.
func rateByDevice(metric string) string {
	return `max by (instance, gpu, GPU_I_ID, GPU_I_PROFILE) (rate(` + metric + sel + `[$__rate_interval]))`
}

// A histogram is classic (buckets are series) or native, as Prometheus was told to
// scrape it: each expression is one for both, of which one side has no data. Of
// classic ones, copies of one device count once. Native ones have no largest, and
// Prometheus 2 takes no mean of them: there a shared device counts once for each
// copy, which changes colours and the weight among several devices, but no quantile
// of one.

// classic is the rate of a series of a histogram, one for each device.
func classic(series, label string) string {
	return `max by (instance, UUID, GPU_I_ID` + label + `) (rate(` + series + sel + `[$__rate_interval]))`
}

func native(histogram string) string {
	return `sum(rate(` + histogram + sel + `[$__rate_interval]))`
}

// buckets is a histogram for a heatmap. Under the names of DCGM 4.7 a gauge can have the
// name of a native one: it has no count.
func buckets(histogram string) string {
	return `sum by (le) (` + classic(histogram+"_bucket", ", le") + `) or (` + native(histogram) + ` and histogram_count(` + native(histogram) + `) > 0)`
}

func quantile(q, histogram string) string {
	return `histogram_quantile(` + q + `, sum by (le) (` + classic(histogram+"_bucket", ", le") + `) or ` + native(histogram) + `)`
}

func mean(histogram string) string {
	return `sum(` + classic(histogram+"_sum", "") + `) / sum(` + classic(histogram+"_count", "") + `)` +
		` or histogram_sum(` + native(histogram) + `) / histogram_count(` + native(histogram) + `)`
}

// deviceLegend is how a device is called; what it lacks is left empty by Grafana.
const deviceLegend = "{{instance}} GPU {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}"

// device asks for a field of each device.
func device(metric string) query { return query{deviceLegend, byDevice(metric)} }

// fleetWide selects by node only.
func fleetWide(expr string) string { return strings.ReplaceAll(expr, "S}", `instance=~"$instance"}`) }

var (
	instance = choice("instance", "Node", "instance", `{__name__=~"DCGM_FI_DEV_GPU_TEMP(_CELSIUS)?"}`)
	gpuIndex = choice("gpu", "GPU", "gpu", `{__name__=~"DCGM_FI_DEV_GPU_TEMP(_CELSIUS)?", instance=~"$instance"}`)
)

// driverOf gives series the label driver, from the label of either generation.
func driverOf(series string) string {
	for _, label := range []string{"DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION"} {
		series = `label_replace(` + series + `, "driver", "$1", "` + label + `", "(.+)")`
	}
	return series
}

// selection is a metric of DCGM with what selects of it, and the function of its range.
var selection = regexp.MustCompile(`(?:(\w+)\()?\b(DCGM_FI_\w+)(\{[^{}]*\})?(\[[^\]]+\]\))?( offset \w+)?`)

// bothGenerations makes an expression over old names of DCGM one for pages with the new
// names, too, in the old unit. A page with both has each value once: "or" leaves out what
// has the labels of the left side.
func bothGenerations(expr string) string {
	var out strings.Builder
	last := 0
	for _, at := range selection.FindAllStringSubmatchIndex(expr, -1) {
		part := func(i int) string {
			if at[2*i] < 0 {
				return ""
			}
			return expr[at[2*i]:at[2*i+1]]
		}
		name := part(2)
		d, _, known := field.ByName(name)
		if !known || d.Name != name || d.Kind == field.String {
			continue
		}
		latest, scale := d.NewName()
		if latest == name {
			continue
		}
		from, function := at[4], ""
		if part(4) != "" { // a range belongs to its function
			from, function = at[0], part(1)+"("
		}
		old := expr[from:at[1]]
		both := old + " or " + function + latest + part(3) + part(4) + part(5) + inOldUnit(scale)
		if from == 0 || at[1] == len(expr) || expr[from-1] != '(' || expr[at[1]] != ')' {
			both = "(" + both + ")"
		}
		out.WriteString(expr[last:from] + both)
		last = at[1]
	}
	return out.String() + expr[last:]
}

// inOldUnit is what turns a value under a new name into that under the old one.
func inOldUnit(scale float64) string {
	switch {
	case scale == 1:
		return ""
	case scale > 1:
		return " / " + strconv.FormatFloat(scale, 'f', 0, 64)
	}
	return " * " + strconv.FormatFloat(1/scale, 'f', 0, 64)
}
