package podresources

import (
	"slices"
	"time"
)

// trust judges the lists of a kubelet that has restarted. That serves before it
// has the pods of its sources: static ones come from files at once, all others
// from the API server, when that answers. Devices come with their pods, since the
// checkpoint of the device manager is read before the first pod is taken in. So a
// pod that is listed has what is listed, but one that is not may be there.
type trust struct {
	settle, distrust time.Duration

	before  []uint64  // hashes of the pods, with devices or without, of the last list that was believed; sorted
	since   time.Time // the first list of the new kubelet; zero while all is believed
	listed  []uint64  // of the last list since then; sorted
	steady  time.Time // since when that is the same
	started time.Time // the last restart, believed or not; zero: none was seen
}

// restarted says that the next list comes over a new connection.
func (t *trust) restarted(now time.Time) {
	t.since, t.listed, t.steady = now, nil, now
	t.started = now
}

// missing are pods of last, as it was published, that a does not show although
// they may still be there; they lose what others have got. It is empty where all
// of a is believed. Time complexity is linear, but for sorting.
func (t *trust) missing(last []Pod, a *answer, now time.Time) []Pod {
	listed := set(slices.Clone(a.listed))
	if t.since.IsZero() {
		t.before = listed
		return nil
	}
	if !slices.Equal(listed, t.listed) {
		t.listed, t.steady = listed, now
	}
	held := absent(last, a.pods)
	if len(held) == 0 || t.settled(now) || now.Sub(t.since) >= t.distrust {
		t.before, t.since, t.listed = listed, time.Time{}, nil
		return nil
	}
	return held
}

// settled says that the kubelet has found its pods, as far as one can see.
func (t *trust) settled(now time.Time) bool {
	return len(t.listed) > 0 && 2*common(t.before, t.listed) >= len(t.before) && now.Sub(t.steady) >= t.settle
}

// common is how many elements two sorted sets have in common.
func common(a, b []uint64) (n int) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			a = a[1:]
		case a[0] > b[0]:
			b = b[1:]
		default:
			n++
			a, b = a[1:], b[1:]
		}
	}
	return n
}

// deviceKey names a device as the kubelet does.
type deviceKey struct{ resource, id string }

// absent are the pods of last that are not in now, without devices that are
// somebody else's now: the kubelet gives one id to one container only. Claims can
// be shared, so they tell nothing. Both are sorted and stay as they are.
func absent(last, now []Pod) []Pod {
	var gone []Pod
	for _, p := range last {
		if _, there := slices.BinarySearchFunc(now, p, comparePods); !there {
			gone = append(gone, p)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	taken := map[deviceKey]bool{}
	for _, p := range now {
		for _, c := range p.Containers {
			for _, d := range c.Devices {
				for _, id := range d.IDs {
					taken[deviceKey{d.Resource, id}] = true
				}
			}
		}
	}
	return without(gone, taken)
}

// without are pods without those devices; what has nothing left is left out.
func without(pods []Pod, taken map[deviceKey]bool) (out []Pod) {
	for _, p := range pods {
		containers := make([]Container, 0, len(p.Containers))
		for _, c := range p.Containers {
			devices := make([]Devices, 0, len(c.Devices))
			for _, d := range c.Devices {
				ids := slices.DeleteFunc(slices.Clone(d.IDs), func(id string) bool { return taken[deviceKey{d.Resource, id}] })
				if len(ids) > 0 {
					devices = append(devices, Devices{Resource: d.Resource, IDs: ids})
				}
			}
			if c.Devices = devices; len(devices) > 0 || len(c.Claims) > 0 {
				containers = append(containers, c)
			}
		}
		if p.Containers = containers; len(containers) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// able is what could be handed out: what is told now and, for a while after a
// restart, resources whose plugins have not registered again.
func (t *trust) able(last, told []Devices, now time.Time) []Devices {
	if t.started.IsZero() || now.Sub(t.started) >= t.distrust {
		return told
	}
	out := slices.Clone(told)
	for _, d := range last {
		if _, there := slices.BinarySearchFunc(told, d, compareDevices); !there {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, compareDevices)
	return out
}
