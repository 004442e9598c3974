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

// quantity is a value of a device that top shows, independent of the vendor and of the field's name.
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

// roles maps quantities to roles.
var roles = [quantities]field.Role{
	util: field.RoleActivity, tensor: field.RoleTensorActivity, dram: field.RoleMemoryActivity,
	memoryUsed: field.RoleMemoryUsed, memoryFree: field.RoleMemoryFree, memoryReserved: field.RoleMemoryReserved, memoryTotal: field.RoleMemoryTotal,
	power: field.RolePower, powerLimit: field.RolePowerLimit,
	temperature: field.RoleTemperature, memoryTemperature: field.RoleMemoryTemperature,
	smClock: field.RoleClock, memoryClock: field.RoleMemoryClock, throttle: field.RoleClockEvents,
}

// names returns all field names of the shown readings.
var names = sync.OnceValue(func() (out []string) {
	for _, d := range field.All() {
		if !slices.ContainsFunc(d.Meanings, func(m field.Meaning) bool { return m.Role == field.RoleThrottling || slices.Contains(roles[:], m.Role) }) {
			continue
		}
		out = append(append(out, d.Name), d.Aliases...)
		for _, id := range d.Scaled {
			s, _ := field.ByID(id)
			out = append(append(out, s.Name), s.Aliases...)
		}
	}
	slices.Sort(out)
	return append(slices.Compact(out), "-*") // no error if the exporter's list has none of them
})

// values holds a device's quantities (NaN if unknown), the field that supplied each, and the conversion factor.
type values struct {
	of     [quantities]float64
	field  [quantities]string
	factor [quantities]float64
	// limits holds the reasons that a device reports one by one (field.RoleThrottling), and whether each is active.
	limits map[string]bool
}

// heldDown returns why the device's clocks are reduced now.
func (v *values) heldDown() string {
	if mask := v.of[throttle]; !math.IsNaN(mask) || v.limits == nil {
		return reasons(mask)
	}
	var out []string
	for _, reason := range slices.Sorted(maps.Keys(v.limits)) {
		if v.limits[reason] {
			out = append(out, strings.ReplaceAll(reason, "_", " "))
		}
	}
	return cmp.Or(strings.Join(out, ", "), "nothing")
}

func (v *values) reset() {
	v.limits = nil
	for i := range v.of {
		v.of[i], v.field[i] = math.NaN(), ""
	}
}

// setFields fills v from a device's fields. A value older than its interval allows counts as unknown.
func (v *values) setFields(fields []apiv1.Field, interval float64) {
	v.reset()
	var rank [quantities]int
	for i := range fields {
		f := &fields[i]
		if f.Value == nil || old(f, interval) {
			continue
		}
		if field.Role(f.Role) == field.RoleThrottling {
			if v.limits == nil {
				v.limits = map[string]bool{}
			}
			for _, reason := range f.Labels {
				v.limits[reason] = *f.Value > 0
			}
		}
		q := slices.Index(roles[:], field.Role(f.Role))
		if q < 0 || v.field[q] != "" && rank[q] <= f.Rank {
			continue
		}
		factor := field.UnitFactor(f.Unit, roles[q].Unit())
		v.of[q], v.field[q], v.factor[q], rank[q] = *f.Value*factor, f.Name, factor, f.Rank
	}
	if used, free := v.of[memoryUsed], v.of[memoryFree]; math.IsNaN(v.of[memoryTotal]) && !math.IsNaN(used+free) {
		v.of[memoryTotal] = used + free
		if r := v.of[memoryReserved]; !math.IsNaN(r) {
			v.of[memoryTotal] += r
		}
	}
}

// old reports whether a value was read longer ago than three of its intervals, at least five seconds.
func old(f *apiv1.Field, interval float64) bool {
	return f.Age != nil && *f.Age > max(5, 3*cmp.Or(f.Interval, interval))
}

// row is a device with its shown values.
type row struct {
	*apiv1.Device
	values
	node int // index of the node
}

// key identifies a device among all nodes.
type key struct {
	node   int
	device string
}

func (r *row) key() key { return key{r.node, r.ID} }

// part reports whether the device is neither a GPU nor an instance.
func (r *row) part() bool {
	return r.Kind != "gpu" && r.Kind != "instance" && r.Kind != "compute instance"
}

// number returns the GPU's index and the numbers of its parts.
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

// model returns the device's model without the vendor's name.
func (r *row) model() string {
	name := r.Model
	for _, v := range field.Vendors() {
		name = strings.TrimPrefix(name, v.Name+" ")
	}
	if r.Instance != nil && r.Instance.Profile != "" {
		name = "MIG " + r.Instance.Profile
	}
	if r.part() {
		name = r.Kind
	}
	return cmp.Or(name, "-")
}

// user returns a short name of a user.
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

// users returns the device's users, or its processes if it has no users.
func (r *row) users() string {
	var out []string
	for i := range r.Users {
		out = append(out, user(&r.Users[i]))
	}
	if len(out) == 0 {
		for i := range r.Processes {
			out = append(out, cmp.Or(r.Processes[i].Name, "-"))
		}
	}
	return cmp.Or(join(", ", unique(out)...), "-")
}

// unique removes repeated texts.
func unique(texts []string) (out []string) {
	for _, t := range texts {
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}
