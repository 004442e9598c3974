package main

import "strings"

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

func buckets(histogram string) string {
	return `sum by (le) (` + classic(histogram+"_bucket", ", le") + `) or ` + native(histogram)
}

func quantile(q, histogram string) string {
	return `histogram_quantile(` + q + `, ` + buckets(histogram) + `)`
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
	instance = choice("instance", "Node", "instance", `DCGM_FI_DEV_GPU_TEMP`)
	gpuIndex = choice("gpu", "GPU", "gpu", `DCGM_FI_DEV_GPU_TEMP{instance=~"$instance"}`)
)
