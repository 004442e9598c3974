package supervisor

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// absentFor is how long a board that discovery no longer finds is reported as absent.
const absentFor = time.Hour

// maxAbsent bounds the absent boards: a library may give a board another ID each time.
const maxAbsent = collector.MaxGPUs

// inventory remembers devices across sessions: boards that are no longer found, and each GPU's number, so that the
// other GPUs keep theirs when one goes. Only the goroutine of Run uses it; a state holds copies for readers.
type inventory struct {
	numbers map[string]string  // label gpu by the GPU's ID
	gpus    []collector.Device // of the last session
	absent  map[string]departed
	parted  []session.DeviceStatus // devices that a release removed from the page
}

type departed struct {
	status session.DeviceStatus
	since  time.Time
	events *view.Source // columns of its past events (XIDs); nil if it was not shown
}

// update applies the sources of a new session. shown are the previous session's sources, before its devices.
func (v *inventory) update(sources, shown []*view.Source, before []session.DeviceStatus, log *zap.Logger, now time.Time) {
	present, addresses, levels := devicesOf(sources), make(map[string]bool), make(map[field.Level]bool)
	v.gpus = nil
	otherList := len(sources) > 0 && len(shown) > 0 && !sameList(sources[0].Fields, shown[0].Fields)
	for _, s := range sources {
		for i := range s.Devices {
			levels[s.Devices[i].Level] = true
			addresses[s.Devices[i].PCIBusID] = true
			if s.Devices[i].Level == field.GPU {
				v.gpus = append(v.gpus, s.Devices[i])
			}
		}
	}
	for _, st := range slices.Concat(before, v.parted) {
		id := st.Device.ID
		if present[id] || !session.IsBoard(st.Device) || st.State == session.Absent {
			continue
		}
		if otherList && !levels[st.Device.Level] {
			continue // the new list has no fields for such devices
		}
		if at := st.Device.PCIBusID; st.Device.Level == field.GPU && (st.Device.UUID == "" && at == "" || id == at && addresses[at]) {
			continue // it never had an identity, and may have appeared under its own name since
		}
		st.State, st.Cause, st.Reason = session.Absent, session.CauseVanished, "discovery no longer finds the device"
		v.absent[id] = departed{st, now, eventsOf(shown, id)}
		log.Warn("device has disappeared",
			zap.String("device", id), zap.String("gpu", st.Device.GPU), zap.String("pci_bus_id", st.Device.PCIBusID), lastSample(st.LastSample))
	}
	v.parted = nil
	for id, d := range v.absent {
		if present[id] {
			log.Info("device is back", zap.String("device", id), zap.String("gpu", d.status.Device.GPU))
		}
		if present[id] || now.Sub(d.since) > absentFor {
			delete(v.absent, id)
		}
	}
	for len(v.absent) > maxAbsent {
		delete(v.absent, slices.MinFunc(slices.Collect(maps.Keys(v.absent)), func(a, b string) int {
			return cmp.Or(v.absent[a].since.Compare(v.absent[b].since), cmp.Compare(a, b))
		}))
	}
}

// eventsOf returns a source of one device with only its event columns and no new rows, so that the page and the counts
// keep its events.
func eventsOf(shown []*view.Source, id string) *view.Source {
	for _, s := range shown {
		if slices.ContainsFunc(s.Devices, func(d collector.Device) bool { return d.ID == id }) {
			blank := ring.Row{Time: time.Now().UnixNano(), Stamps: make([]int64, len(s.Devices)), Cells: slices.Repeat([]float64{math.NaN()}, len(s.Columns))}
			return cut(s, &blank, func(device string) bool { return device == id },
				func(f field.ID) bool { return f == field.XIDErrors || f == field.XIDEvent })
		}
	}
	return nil
}

// cut returns a source with the chosen devices and columns of s, a row, and no new rows.
func cut(s *view.Source, row *ring.Row, devices func(id string) bool, columns func(field.ID) bool) *view.Source {
	out := &view.Source{Collector: s.Collector, Fields: s.Fields}
	at, part := make(map[int]int), ring.Row{}
	for i := range s.Devices {
		if devices(s.Devices[i].ID) {
			at[i] = len(out.Devices)
			out.Devices, part.Stamps = append(out.Devices, s.Devices[i]), append(part.Stamps, row.Stamps[i])
			out.Every = append(out.Every, s.IntervalOf(i))
		}
	}
	for i, c := range s.Columns {
		if device, chosen := at[c.Device]; chosen && columns(c.Field) {
			c.Device = device
			out.Columns, part.Cells = append(out.Columns, c), append(part.Cells, row.Cells[i])
		}
	}
	out.Ring = ring.Make(2, len(out.Devices), len(out.Columns))
	out.Ring.Append(row.Time, part.Stamps, part.Cells)
	return out
}

// events returns the sources of the absent boards.
func (v *inventory) events(list field.List) (out []*view.Source) {
	for _, id := range slices.Sorted(maps.Keys(v.absent)) {
		if events := v.absent[id].events; events != nil {
			s := *events
			s.Fields = list
			out = append(out, &s)
		}
	}
	return out
}

// missing returns the absent boards in the order of their IDs.
func (v *inventory) missing(now time.Time) (out []session.DeviceStatus) {
	for _, id := range slices.Sorted(maps.Keys(v.absent)) {
		if d := v.absent[id]; now.Sub(d.since) <= absentFor {
			out = append(out, d.status)
		}
	}
	return out
}

// part remembers devices that a release removes from the page.
func (v *inventory) part(devices []session.DeviceStatus, cause session.Cause, reason string) {
	v.parted = nil
	for _, d := range devices {
		if d.State == session.Absent {
			continue
		}
		d.State, d.Cause, d.Reason = session.Stalled, cause, reason
		if cause == session.CauseReleased {
			d.State = session.Released
		}
		v.parted = append(v.parted, d)
	}
}

// identify gives GPUs of a new session that do not answer, and so may have no name, their former identity by PCI
// address. Without an address, if as many such GPUs are new as others are missing, they match in the order of their
// numbers, because a driver numbers GPUs in the order of their addresses.
func (v *inventory) identify(sources []*view.Source) []*view.Source {
	present := devicesOf(sources)
	var missing []collector.Device
	known := make(map[string]bool)
	for _, d := range v.gpus {
		known[d.ID] = true
		if !present[d.ID] {
			missing = append(missing, d)
		}
	}
	var silent []int // sources with a single unknown GPU that does not answer
	for i, s := range sources {
		if len(s.Columns) == 0 && len(s.Devices) == 1 && s.Devices[0].Level == field.GPU && !known[s.Devices[0].ID] {
			silent = append(silent, i)
		}
	}
	if len(silent) == 0 || len(missing) == 0 {
		return sources
	}
	byNumber := func(a, b collector.Device) int { return cmp.Or(len(a.GPU)-len(b.GPU), cmp.Compare(a.GPU, b.GPU)) }
	slices.SortFunc(missing, byNumber)
	slices.SortFunc(silent, func(a, b int) int { return byNumber(sources[a].Devices[0], sources[b].Devices[0]) })
	out := slices.Clone(sources)
	for n, i := range silent {
		at := sources[i].Devices[0].PCIBusID
		was := slices.IndexFunc(missing, func(d collector.Device) bool { return at != "" && d.PCIBusID == at })
		if was < 0 && at == "" && len(silent) == len(missing) {
			was = n
		}
		if was >= 0 {
			s, d := *sources[i], missing[was]
			d.GPU = s.Devices[0].GPU // the driver's number, as renumber expects
			s.Devices = []collector.Device{d}
			out[i] = &s
		}
	}
	return out
}

// renumber gives each GPU of a new session, with its instances and links, its former number: when a GPU goes, a driver
// renumbers the rest. A new GPU gets its own number, or the lowest free one.
func (v *inventory) renumber(sources []*view.Source) []*view.Source {
	taken := make(map[string]bool)
	var gpus []*collector.Device
	for _, s := range sources {
		for i := range s.Devices {
			if d := &s.Devices[i]; d.Level == field.GPU && d.GPU != "" {
				gpus = append(gpus, d)
				if n, ok := v.numbers[d.ID]; ok {
					taken[n] = true
				}
			}
		}
	}
	renumbered := false
	for _, d := range gpus {
		n, known := v.numbers[d.ID]
		if !known {
			n = d.GPU
			for i := 0; taken[n]; i++ {
				n = strconv.Itoa(i)
			}
			maps.DeleteFunc(v.numbers, func(_, other string) bool { return other == n }) // forget a GPU that is gone
			taken[n], v.numbers[d.ID] = true, n
		}
		renumbered = renumbered || n != d.GPU
	}
	if !renumbered {
		return sources
	}
	old := make(map[string]string, len(gpus)) // our number by the driver's number
	for _, d := range gpus {
		old[d.GPU] = v.numbers[d.ID]
	}
	out := make([]*view.Source, len(sources))
	for i, s := range sources {
		c := *s
		c.Devices = slices.Clone(s.Devices)
		for j := range c.Devices {
			if n, ok := old[c.Devices[j].GPU]; ok {
				c.Devices[j].GPU = n
			}
		}
		out[i] = &c
	}
	return out
}
