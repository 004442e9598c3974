package main

import (
	"regexp"
	"strconv"
	"strings"

	"warpgauge/pkg/field"
)

// Selectors of expressions: nodes; GPUs of a model; one GPU.
const (
	ofNodes  = `cluster=~"$cluster", job=~"$job", instance=~"$instance"`
	ofModels = ofNodes + `, modelName=~"$model"`
	ofGPUs   = ofNodes + `, gpu=~"$gpu"`
	sel      = `{` + ofGPUs + `}`
)

// perDevice lists the labels that identify a device. GPUs of two vendors on one node share numbers and differ in their
// models. Prometheus sorts by labels, so a UUID would come first.
const perDevice = `cluster, job, instance, gpu, modelName, GPU_I_ID, GPU_I_PROFILE`

// byDevice returns one series per device. A device that several pods share has a copy of its series per pod; the
// device's own value is the largest of the series with its name.
func byDevice(metric string) string {
	return `max by (` + perDevice + `) (` + metric + sel + `)`
}

// rateBy returns the rate of a counter without its owner's labels: with those it is another series for each pod.
func rateBy(labels, series string) string {
	return `rate(max by (` + labels + `) (` + series + `)[$__rate_interval:$step])`
}

func rateByDevice(metric string) string { return rateBy(perDevice, metric+sel) }

// busy is the utilisation in percent. MIG instances have none, so for them it is the share of time in which their
// engine was busy.
const busy = `max by (` + perDevice + `) (DCGM_FI_DEV_GPU_UTIL` + sel + `) or max by (` + perDevice + `) (DCGM_FI_PROF_GR_ENGINE_ACTIVE{GPU_I_ID!="", ` + ofGPUs + `}) * 100`

// perGPU returns a field of each whole board. If a GPU in MIG mode lacks the field, it returns the sum over its instances.
func perGPU(metric, labels string) string {
	return `(` + boards(metric+`{GPU_I_ID="", `+labels+`}`, ", modelName") + ` or sum without (GPU_I_ID) (` + boards(metric+`{GPU_I_ID!="", `+labels+`}`, ", modelName, GPU_I_ID") + `))`
}

// boards returns one value per board of a series, whose selector is in braces: of two exporters that report it the larger one. A board
// of AMD's without a UUID has its PCI address there, as boards of other nodes do, so it counts by node. more adds labels.
func boards(series, more string) string {
	of := func(uuid string) string { return strings.Replace(series, "{", `{UUID`+uuid+`"|.*:.*", `, 1) }
	return `max by (cluster, UUID` + more + `) (` + of("!~") + `) or max by (cluster, instance, gpu, UUID` + more + `) (` + of("=~") + `)`
}

// xidsIn24h returns the XIDs of the last 24 hours, each code of each GPU once, if the GPU did not have it the day
// before. It includes GPUs that have been lost since. The UUID, which is uuid on a page of -o, identifies a board whatever names its
// exporters give the node.
func xidsIn24h(labels string) string {
	return strings.ReplaceAll(`max by (cluster, instance, gpu, UUID, uuid, modelName, err_code, err_msg) (last_over_time(DCGM_FI_DEV_XID_ERRORS{err_code!="0", S}[1d])) unless on (cluster, UUID, uuid, err_code) (DCGM_FI_DEV_XID_ERRORS{S} offset 1d)`, "S}", labels+"}")
}

const xidsMeaning = "Each code of each GPU once, if the GPU did not have it a day ago. GPUs that are lost by now count. "

// orNone returns the series of expr above 0. If there are none, it returns one series of 0 with the
// label "none" while witness, which exists whenever expr can, has series: a healthy fleet shows 0, not a gap.
func orNone(expr, label, witness string) string {
	return `(` + expr + `) > 0 or on () label_replace(sum(` + witness + `) * 0, "` + label + `", "none", "", "")`
}

// A histogram is classic (buckets are series) or native, depending on Prometheus' scrape configuration. Each expression
// covers both; of a server with both the native one counts. Both count a device once, whatever its owners: the largest of its
// classic series, or one of its native ones, because PromQL has no maximum of those.

// rateOnce returns one rate per device, although two exporters may report it: the larger one. Their counters stay apart,
// because a smaller counter after a larger one looks like a restart.
func rateOnce(series, label string) string {
	return `max without (job) (` + rateBy(`cluster, job, instance, UUID, GPU_I_ID`+label, series+sel) + `)`
}

// native does the same for native histograms: of two exporters it takes the one with more scrapes.
func native(histogram string) string {
	const board, by = `(cluster, instance, UUID, GPU_I_ID) `, `(cluster, job, instance, UUID, GPU_I_ID) `
	rate := `rate(sum by ` + by + `(` + histogram + sel + ` and topk by ` + by + `(1, count without (le) (` + histogram + sel + `)))[$__rate_interval:$step])`
	return `sum(` + rate + ` and topk by ` + board + `(1, max by ` + by + `(count_over_time(` + histogram + sel + `[$__rate_interval]))))`
}

// buckets returns a histogram for a heatmap. A gauge can have a native histogram's name (DCGM 4.7), but it has no quantile.
func buckets(histogram string) string {
	return `(` + native(histogram) + ` and histogram_quantile(0.5, ` + native(histogram) + `) >= 0) or on () sum by (le) (` + rateOnce(histogram+"_bucket", ", le") + `)`
}

func quantile(q, histogram string) string {
	return `histogram_quantile(` + q + `, ` + native(histogram) + `) or histogram_quantile(` + q + `, sum by (le) (` + rateOnce(histogram+"_bucket", ", le") + `))`
}

// mean returns the mean of a classic histogram.
func mean(histogram string) string {
	return `sum(` + rateOnce(histogram+"_sum", "") + `) / sum(` + rateOnce(histogram+"_count", "") + `)`
}

// deviceLegend names a device. Grafana leaves missing labels empty.
const deviceLegend = "{{instance}} GPU {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}"

// device returns a query for a field of each device.
func device(metric string) query { return query{deviceLegend, byDevice(metric)} }

// fleetWide replaces "S}" by a selector of GPUs of a model, and "N}" by a selector of nodes.
func fleetWide(expr string) string {
	return strings.NewReplacer("S}", ofModels+"}", "N}", ofNodes+"}").Replace(expr)
}

// ofTheModel drops devices that are known to be of another model than the chosen ones. It is for exporter metrics,
// which lack the model label.
func ofTheModel(expr string) string {
	const gpu = ` unless on (cluster, job, instance, gpu) `
	return expr + gpu + `((DCGM_FI_DEV_GPU_TEMP{modelName!~"$model", N})` + gpu + `(DCGM_FI_DEV_GPU_TEMP{modelName=~"$model", N}))`
}

const temperatures = `__name__=~"DCGM_FI_DEV_GPU_TEMP(_CELSIUS)?"`

var (
	cluster  = choice("cluster", "Cluster", "cluster", `warpgauge_build_info`)
	job      = choice("job", "Job", "job", `warpgauge_build_info{cluster=~"$cluster"}`)
	model    = choice("model", "Model", "modelName", `{`+temperatures+`, cluster=~"$cluster", job=~"$job"}`)
	instance = choice("instance", "Node", "instance", `{`+temperatures+`, cluster=~"$cluster", job=~"$job"}`)
	rateStep = variable{"name": "step", "label": "Step of rates", "type": "custom", "query": "30s,15s,5s,1s,1m"}
	gpuIndex = choice("gpu", "GPU", "gpu", `{`+temperatures+`, `+ofNodes+`}`)
)

// driverOf gives series the label driver, from the label of either generation.
func driverOf(series string) string {
	for _, label := range []string{"DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION"} {
		series = `label_replace(` + series + `, "driver", "$1", "` + label + `", "(.+)")`
	}
	return series
}

// selection matches a metric of DCGM with its selector, range and the function over that range.
var selection = regexp.MustCompile(`(?:(\w+)\()?\b(DCGM_FI_\w+)(\{[^{}]*\})?(\[[^\]]+\](?: offset \w+)?\))?( offset \w+)?`)

// bothGenerations extends an expression over old DCGM names to pages with the new names, in the old unit. If a page has
// both, "or" keeps the left side, so each value counts once.
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

// inOldUnit returns the factor that turns a value under a new name into the old unit.
func inOldUnit(scale float64) string {
	switch {
	case scale == 1:
		return ""
	case scale > 1:
		return " / " + strconv.FormatFloat(scale, 'f', 0, 64)
	}
	return " * " + strconv.FormatFloat(1/scale, 'f', 0, 64)
}
