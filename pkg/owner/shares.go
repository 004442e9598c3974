package owner

import (
	"maps"
	"math"
	"slices"
	"time"

	"warpgauge/pkg/view"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"
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
	used := newest(k.o.Processes)
	t := k.table.Load()
	s := sharer{keeper: k, table: t, renderer: k.renderer(t)}
	for _, d := range t.devices.all {
		if d.Level == field.Link || !t.answers[d.ID].split {
			continue
		}
		on, known := used.Devices[d.ID]
		age := now.Sub(on.Time)
		s.device(d, t.usesOf(d), on, known && age < k.o.StaleAfter && age > -k.o.StaleAfter)
	}
	k.publish(s.series, s.values)
}

// publish publishes the values if they have changed.
func (k *Keeper) publish(series []view.Share, values []float64) {
	last := k.shares.Load()
	switch {
	case last == nil && len(series) == 0:
	case last == nil:
		k.shares.Store(&view.Shares{Set: 1, Series: series, Values: values})
	case !slices.EqualFunc(last.Series, series, equalShares):
		k.shares.Store(&view.Shares{Set: last.Set + 1, Series: series, Values: values})
	case !slices.EqualFunc(last.Values, values, sameValue):
		k.shares.Store(&view.Shares{Set: last.Set, Series: last.Series, Values: values})
	}
}

func equalShares(a, b view.Share) bool {
	return a.Device == b.Device && a.Field == b.Field && equalOwners(a.Owner, b.Owner)
}

// sharer sums the usage of users. It belongs to a call with the Keeper's mu held.
type sharer struct {
	keeper   *Keeper
	table    *table
	renderer *renderer

	series []view.Share
	values []float64
}

// usage holds the processes of one pod on a device.
type usage struct {
	device *collector.Device
	users  []User // the pod's users
	fresh  bool   // the data is recent
	// idle means that a user without a process uses nothing. busy means that the library is known to report
	// utilisation.
	idle, busy bool
}

// device adds the series of all pods on the device.
func (s *sharer) device(d *collector.Device, uses []use, on DeviceUse, fresh bool) {
	unknownPods := false // pods with unknown names
	of := map[kube.PodName][]User{}
	busy := len(on.Users) == 0 && !isInstance(d)
	for _, u := range on.Users {
		name, _, known := s.keeper.findPod(s.table, u.PodUID, u.ContainerID)
		if known {
			of[name] = append(of[name], u)
		}
		unknownPods = unknownPods || !known && u.PodUID != ""
		busy = busy || u.SM == u.SM
	}
	perPod(uses, func(pod []use) {
		name := pod[0].pod
		if s.table.people.uids[name] == "" {
			return // its processes cannot be told apart from other users' processes
		}
		s.pods(pod, usage{device: d, users: of[name], fresh: fresh, idle: on.Complete && !unknownPods, busy: busy})
	})
}

// pods adds the series of one pod: one per container if the runtime names them.
func (s *sharer) pods(uses []use, on usage) {
	names := s.keeper.runtime.containers[uses[0].pod]
	if slices.ContainsFunc(uses, func(u use) bool { return !names[u.container] }) {
		s.addSeries(uses, on, on.users)
		return
	}
	of := map[string][]User{}
	for _, u := range on.users {
		c, _ := s.keeper.runtime.container(u.ContainerID)
		of[c.Name] = append(of[c.Name], u)
	}
	on.idle = on.idle && len(of[""]) == 0 // "": a container that has just started
	perContainer(uses, func(container []use) {
		s.addSeries(container, on, of[container[0].container])
		delete(of, container[0].container)
	})
	for _, name := range slices.Sorted(maps.Keys(of)) { // other containers of the pod have the device
		s.addSeries([]use{{pod: uses[0].pod, container: name}}, on, of[name])
	}
}

// addSeries adds the series of one user with the given uses.
func (s *sharer) addSeries(uses []use, on usage, users []User) {
	owner := s.renderer.owner(uses, true)
	for _, reading := range []struct {
		field field.ID
		value float64
	}{
		{gpuUtil, on.sum(users, on.busy, func(u *User) float64 { return u.SM })},
		{fbUsed, on.sum(users, true, func(u *User) float64 { return u.Memory }) / mebibyte},
	} {
		s.series = append(s.series, view.Share{Device: on.device.ID, Field: reading.field, Owner: owner})
		s.values = append(s.values, reading.value)
	}
}

// sum sums one value over users. Without users it is 0 if the pod is known to have no process and the library reports
// the value (reported). If one value is unknown, the sum is, too.
func (on *usage) sum(users []User, reported bool, value func(*User) float64) float64 {
	if !on.fresh || len(users) == 0 && !(on.idle && reported) {
		return math.NaN()
	}
	total := 0.0
	for i := range users {
		total += value(&users[i])
	}
	return total
}
