package owner

import (
	"cmp"
	"math"
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/view"
)

// Readings that are shown per user, by DCGM's numbers, which other vendors' devices use, too.
const (
	gpuUtil field.ID = 203 // DCGM_FI_DEV_GPU_UTIL, percent
	fbUsed  field.ID = 252 // DCGM_FI_DEV_FB_USED, MiB
)

// mebibyte is the unit of fbUsed. Dividing by it is exact, so sums stay exact.
const mebibyte = 1 << 20

// share updates the values of users. It must be called with mu held.
func (k *Keeper) share(now time.Time) {
	used, t := newest(k.o.Processes), k.table.Load()
	r := k.renderer(t)
	var series []view.Share
	var values []float64
	for _, d := range t.devices.all {
		if d.Level == field.Link || !t.answers[d.ID].split {
			continue
		}
		on := used.Devices[d.ID]
		if now.Sub(on.Time).Abs() >= k.o.StaleAfter {
			on = DeviceUse{}
		}
		sums, idle := k.podSums(t, d, on)
		perPod(t.usesOf(d), func(pod []use) {
			name := pod[0].pod
			if t.podInfos[name].uid == "" {
				return // its processes cannot be told apart from other users' processes
			}
			sum, busy := sums[name]
			if !busy {
				sum = idle
			}
			owner := r.owner(pod, true)
			series = append(series, view.Share{Device: d.ID, Field: gpuUtil, Owner: owner}, view.Share{Device: d.ID, Field: fbUsed, Owner: owner})
			values = append(values, sum.util, sum.memory/mebibyte)
		})
	}
	k.publish(series, values)
}

// podUse sums the processes of a pod on a device, in percent of the device and bytes. If one value is unknown, the sum
// is NaN.
type podUse struct{ util, memory float64 }

// podSums returns the sums of each pod, and idle for pods without a process: 0 if the pod is known to have none and the
// library reports the value, else NaN.
func (k *Keeper) podSums(t *table, d *collector.Device, on DeviceUse) (sums map[kube.PodName]podUse, idle podUse) {
	sums, idle = map[kube.PodName]podUse{}, podUse{math.NaN(), math.NaN()}
	complete, reported := on.Complete, len(on.Processes) == 0 && !isInstance(d)
	for _, p := range on.Processes {
		if on.Partial {
			p.Busy, p.Memory = math.NaN(), math.NaN()
		}
		pod, known := k.findPod(t, p.PodUID)
		if known {
			sums[pod] = podUse{sums[pod].util + p.Busy, sums[pod].memory + p.Memory}
		}
		complete = complete && (known || p.PodUID == "")
		reported = reported || p.Busy == p.Busy
	}
	if complete {
		idle.memory = 0
		if reported {
			idle.util = 0
		}
	}
	return sums, idle
}

// publish publishes the values if they have changed.
func (k *Keeper) publish(series []view.Share, values []float64) {
	last := cmp.Or(k.shares.Load(), &view.Shares{})
	next := &view.Shares{Set: last.Set, Series: last.Series, Values: values}
	if !slices.EqualFunc(last.Series, series, func(a, b view.Share) bool {
		return a.Device == b.Device && a.Field == b.Field && equalOwners(a.Owner, b.Owner)
	}) {
		next.Set, next.Series = last.Set+1, series
	}
	if next.Set != last.Set || slices.Compare(last.Values, values) != 0 {
		k.shares.Store(next)
	}
}
