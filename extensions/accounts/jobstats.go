package accounts

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/view"
)

// jobstats has the families that Princeton's jobstats queries, with the labels of its exporter (main.go of
// https://github.com/plazonic/nvidia_gpu_prometheus_exporter at 73b8cc4): gauges of the newest sample. A device that several jobs
// share has a series for each. What was not read is absent, and so is a stale device.
type jobstats struct {
	board  *view.Board
	owners func(*collector.Device) []view.Owner
	stale  time.Duration // see Source.StaleAfter
	now    func() time.Time
}

func jobstatsDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("nvidia_gpu_"+name, help, []string{"ordinal", "minor_number", "uuid", "name", "GPU_I_ID", "jobid", "userid"}, nil)
}

var jobstatsGauges = []struct {
	desc        *prometheus.Desc
	field       field.ID
	most, scale float64
	ofBoard     bool // an instance has its board's
}{
	{desc: jobstatsDesc("jobId", "Number of a job that has the GPU or instance.")}, // the first one
	{jobstatsDesc("memory_used_bytes", "Memory in use, without what the driver reserves."), memoryUsed, maxMemory, 1 << 20, false},
	{jobstatsDesc("memory_total_bytes", "Memory of the GPU or instance."), memoryTotal, maxMemory, 1 << 20, false},
	{jobstatsDesc("duty_cycle", "Percentage of time in which a kernel ran. Absent with MIG."), field.GPUUtilization, 100, 1, false},
	{jobstatsDesc("graphics_util_percent", "Share of time, 0 to 1, in which the compute engine was active, if it is read."), field.EngineActive, 1.1, 1, false},
	{jobstatsDesc("power_usage_milliwatts", "Power of the board."), field.PowerUsage, maxPower, 1000, true},
	{jobstatsDesc("temperature_celsius", "Temperature of the GPU."), field.GPUTemperature, 1000, 1, true},
}

// Describe implements prometheus.Collector.
func (j *jobstats) Describe(to chan<- *prometheus.Desc) {
	for _, g := range jobstatsGauges {
		to <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (j *jobstats) Collect(to chan<- prometheus.Metric) {
	sent := map[string]bool{} // devices: the first source with a fresh sample has the series
	for _, s := range j.board.Load().Sources {
		for i, values := range j.values(s) {
			if d := &s.Devices[i]; values != nil && !sent[d.ID] && !d.Unshown && (d.Level == field.GPU || d.Level == field.Instance) {
				sent[d.ID] = true
				jobstatsSend(to, d, j.owners(d), values)
			}
		}
	}
}

// values returns what a source's newest row says, by device and gauge; NaN is unknown. A stale device has nothing.
func (j *jobstats) values(s *view.Source) [][]float64 {
	var row rows.Row
	if !s.Latest(&row.Row) {
		return nil
	}
	out, now := make([][]float64, len(s.Devices)), j.now()
	for i, stamp := range row.Stamps {
		if now.Sub(time.Unix(0, stamp)).Abs() < s.StaleAfter(i, j.stale) {
			out[i] = slices.Repeat([]float64{unknown}, len(jobstatsGauges))
		}
	}
	for i, c := range s.Columns {
		for g, f := range jobstatsGauges {
			if f.field != c.Field || c.Buffer > 0 || len(c.Labels) > 0 || out[c.Device] == nil {
				continue
			}
			for d := range out {
				if out[d] != nil && (d == c.Device || f.ofBoard && s.Devices[d].Parent == s.Devices[c.Device].ID) {
					out[d][g] = at(&row, i, f.most) * f.scale
				}
			}
		}
	}
	return out
}

// jobstatsSend sends the series of a device for each of its jobs, or without a job.
func jobstatsSend(to chan<- prometheus.Metric, d *collector.Device, owners []view.Owner, values []float64) {
	labels := []string{d.GPU, d.GPU, d.UUID, d.Model, d.Instance.ID, "", ""}
	if minor, nvidia := strings.CutPrefix(d.Node, "nvidia"); nvidia {
		labels[1] = minor
		if d.Level == field.Instance {
			labels[2], labels[3] = d.Instance.UUID, d.Model+" MIG "+d.Instance.Profile
		}
	}
	users := map[string]string{} // by job: several containers may have the device
	for _, o := range owners {
		users[collector.LabelValue(o.Labels, "hpc_job")] = collector.LabelValue(o.Facts, "job_uid")
	}
	if len(users) == 0 {
		users[""] = ""
	}
	for labels[5], labels[6] = range users {
		job, err := strconv.ParseUint(labels[5], 10, 64)
		if values[0] = float64(job); err != nil {
			values[0] = unknown
		}
		for g, v := range values {
			if m, err := prometheus.NewConstMetric(jobstatsGauges[g].desc, prometheus.GaugeValue, v, labels...); err == nil && v >= 0 {
				to <- m
			}
		}
	}
}
