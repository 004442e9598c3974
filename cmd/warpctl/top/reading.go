package top

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/field"
)

// quantity is what top shows of a device, from whichever vendor and under whichever of
// its names it comes.
type quantity uint8

const (
	util quantity = iota // %
	tensor
	dram
	memoryUsed // bytes
	memoryFree
	memoryReserved
	memoryTotal
	power // W
	powerLimit
	temperature // celsius
	memoryTemperature
	smClock // MHz
	memoryClock
	throttle // bit mask
	quantities
)

// origin is a reading of the catalogue that a quantity can be taken from.
type origin struct {
	name   string  // any name of it
	label  string  // value that one of the series' labels must have; "" for a series without
	factor float64 // from the reading's unit
}

// origins are in order of preference. MIG instances have no DCGM_FI_DEV_GPU_UTIL. AMD
// GPUs have readings by NVIDIA's names and by names of their own; a list can have either.
var origins = [quantities][]origin{
	util:              {{"DCGM_FI_DEV_GPU_UTIL", "", 1}, {"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "", 100}},
	tensor:            {{"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "", 100}},
	dram:              {{"DCGM_FI_PROF_DRAM_ACTIVE", "", 100}, {"DCGM_FI_DEV_MEM_COPY_UTIL", "", 1}},
	memoryUsed:        {{"DCGM_FI_DEV_FB_USED", "", 1 << 20}, {"amd_gpu_memory_used_bytes", "vram", 1}},
	memoryFree:        {{"DCGM_FI_DEV_FB_FREE", "", 1 << 20}},
	memoryReserved:    {{"DCGM_FI_DEV_FB_RESERVED", "", 1 << 20}},
	memoryTotal:       {{"DCGM_FI_DEV_FB_TOTAL", "", 1 << 20}, {"amd_gpu_memory_size_bytes", "vram", 1}},
	power:             {{"DCGM_FI_DEV_POWER_USAGE", "", 1}, {"DCGM_FI_DEV_POWER_USAGE_INSTANT", "", 1}},
	powerLimit:        {{"DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "", 1}, {"DCGM_FI_DEV_POWER_MGMT_LIMIT", "", 1}},
	temperature:       {{"DCGM_FI_DEV_GPU_TEMP", "", 1}, {"amd_gpu_temperature_celsius", "edge", 1}, {"amd_gpu_temperature_celsius", "junction", 1}},
	memoryTemperature: {{"DCGM_FI_DEV_MEMORY_TEMP", "", 1}, {"amd_gpu_temperature_celsius", "mem", 1}},
	smClock:           {{"DCGM_FI_DEV_SM_CLOCK", "", 1}, {"amd_gpu_clock_hertz", "gfx", 1e-6}},
	memoryClock:       {{"DCGM_FI_DEV_MEM_CLOCK", "", 1}, {"amd_gpu_clock_hertz", "mem", 1e-6}},
	throttle:          {{"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "", 1}},
}

// names are all names under which lists have the readings of origins.
var names = sync.OnceValue(func() (out []string) {
	for _, q := range origins {
		for _, o := range q {
			d, _, _ := field.ByName(o.name)
			out = append(append(out, d.Name), d.Aliases...)
			for _, id := range d.Scaled {
				s, _ := field.ByID(id)
				out = append(append(out, s.Name), s.Aliases...)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
})

// taken is a quantity that a series is an origin of.
type taken struct {
	quantity
	rank   int
	label  string
	factor float64
}

var byReading = sync.OnceValue(func() map[field.ID][]taken {
	out := map[field.ID][]taken{}
	for q, list := range origins {
		for rank, o := range list {
			d, _, _ := field.ByName(o.name)
			out[d.ID] = append(out[d.ID], taken{quantity(q), rank, o.label, o.factor})
		}
	}
	return out
})

// values are a device's quantities, NaN if not known, each with the name of the field
// that it was taken from, and the factor from that.
type values struct {
	of     [quantities]float64
	field  [quantities]string
	factor [quantities]float64
}

func (v *values) reset() {
	for i := range v.of {
		v.of[i], v.field[i] = math.NaN(), ""
	}
}

// take fills v from a device's fields. A value that is older than its interval
// allows is not known.
func (v *values) take(fields []apiv1.Field, interval float64) {
	v.reset()
	var rank [quantities]int
	for i := range fields {
		f := &fields[i]
		if f.Value == nil || old(f, interval) {
			continue
		}
		d, scale, ok := field.ByName(f.Name)
		if !ok {
			continue
		}
		for _, t := range byReading()[d.ID] {
			if !hasLabel(f.Labels, t.label) || v.field[t.quantity] != "" && rank[t.quantity] <= t.rank {
				continue
			}
			q, factor := t.quantity, t.factor/scale
			v.of[q], v.field[q], v.factor[q], rank[q] = *f.Value*factor, f.Name, factor, t.rank
		}
	}
	if used, free := v.of[memoryUsed], v.of[memoryFree]; math.IsNaN(v.of[memoryTotal]) && !math.IsNaN(used+free) {
		v.of[memoryTotal] = used + free
		if r := v.of[memoryReserved]; !math.IsNaN(r) {
			v.of[memoryTotal] += r
		}
	}
}

// old reports whether a value was read longer ago than three of its intervals, at least
// five seconds.
func old(f *apiv1.Field, interval float64) bool {
	return f.Age != nil && *f.Age > max(5, 3*cmp.Or(f.Interval, interval))
}

func hasLabel(labels map[string]string, value string) bool {
	if value == "" {
		return len(labels) == 0
	}
	for _, v := range labels {
		if v == value {
			return true
		}
	}
	return false
}

// row is a device with what is shown of it.
type row struct {
	*apiv1.Device
	values
	node int // index of its node
}

// key names a device among those of all nodes.
type key struct {
	node   int
	device string
}

func (r *row) key() key { return key{r.node, r.ID} }

// part reports whether the device is something else than a GPU or an instance of one.
func (r *row) part() bool {
	return r.Kind != "gpu" && r.Kind != "instance" && r.Kind != "compute instance"
}

// number is the GPU's index with what is below it.
func (r *row) number() string {
	out := r.GPU
	if i := r.Instance; i != nil {
		for _, id := range []string{i.ID, i.ComputeID} {
			if id != "" {
				out += "/" + id
			}
		}
	}
	if r.part() {
		for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
			out = strings.TrimPrefix(out+" "+name+" "+r.Labels[name], " ")
		}
	}
	return cmp.Or(out, r.ID)
}

// model is what the device is, without the vendor's name, which says nothing in a list of
// its GPUs.
func (r *row) model() string {
	name := r.Model
	for _, vendor := range []string{"NVIDIA ", "AMD "} {
		name = strings.TrimPrefix(name, vendor)
	}
	if r.Instance != nil && r.Instance.Profile != "" {
		name = "MIG " + r.Instance.Profile
	}
	if r.part() {
		name = r.Kind
	}
	return cmp.Or(name, "-")
}

// user is a user of the device in one word or two.
func user(u *apiv1.User) string {
	switch {
	case u.Pod != "" && u.Namespace != "":
		return u.Namespace + "/" + u.Pod
	case u.Pod != "":
		return u.Pod
	case u.Job != "":
		return "job " + u.Job
	}
	return u.Container
}

// users are those of the device, or else its processes.
func (r *row) users() string {
	var out []string
	for i := range r.Users {
		if u := user(&r.Users[i]); u != "" && !slices.Contains(out, u) {
			out = append(out, u)
		}
	}
	if len(out) == 0 {
		for i := range r.Processes {
			if p := cmp.Or(r.Processes[i].Name, "-"); !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return cmp.Or(strings.Join(out, ", "), "-")
}
