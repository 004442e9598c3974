package accounts

import (
	"fmt"
	"math"
	"time"

	"warpgauge/extensions/accounts/report"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/owner"
)

// check looks at the processes of owners, and returns an event for each owner that begins or ends to hold a GPU without use.
func check(l *Ledger, now time.Time) (out []events.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := &owner.Usage{}
	if l.o.Processes != nil {
		used = l.o.Processes.Snapshot()
	}
	for _, b := range l.boards {
		for h := range b.present() {
			if h.owner.Kind != report.KindPod && h.owner.Kind != report.KindJob {
				continue
			}
			u, known := used.Devices[h.device]
			if !known {
				u, known = used.Devices[b.device.ID]
			}
			h.use = usageOf(l.o.Owners, h.owner, &u, known)
			idle := h.unused() >= l.o.IdleAfter
			if idle == h.idle {
				continue
			}
			h.idle = idle
			d := b.device
			out = append(out, events.Event{Kind: events.Idle, Time: now, Device: &d, Source: "accounts", Bad: idle, Text: idleText(h.account)})
		}
	}
	return out
}

// usageOf adds up what the processes of an owner do on a device.
func usageOf(owners Owners, o report.Owner, u *owner.DeviceUse, known bool) usage {
	if !known {
		return noUsage
	}
	out, unplaced := usage{}, !u.Complete
	for i := range u.Processes {
		p := &u.Processes[i]
		if mine := o.Kind == report.KindJob && p.Job == o.Job || o.Kind == report.KindPod && owners.Pod(p.PodUID) == o.Namespace+"/"+o.Pod; !mine {
			continue
		}
		out.processes++
		out.busy += p.Process.Busy / 100
		out.memory += p.Memory
	}
	switch {
	case u.Partial || unplaced && out.processes == 0: // it may have others
		return noUsage
	case unplaced:
		out.busy, out.memory = math.NaN(), math.NaN()
	}
	return out
}

func idleText(a *account) string {
	name := "job " + a.owner.Job
	if a.owner.Kind == report.KindPod {
		name = "pod " + a.owner.Namespace + "/" + a.owner.Pod
	}
	if !a.idle {
		return name + " uses its GPU again"
	}
	return fmt.Sprintf("%s has not used its GPU for %v: %s", name, a.unused().Round(time.Second), idleReasons[a.idleReason()])
}

var idleReasons = map[string]string{
	"no_process": "it has no process on it", "process": "its processes do nothing", "unknown": "whether it has a process on it is not known",
}

// noteVerdict notes a change of a board's health with its owners.
func noteVerdict(l *Ledger, e events.Event) {
	if e.Device == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.boards[boardOf(e.Device)]; b != nil {
		for h := range b.present() {
			if len(h.verdicts) < maxVerdicts && e.Bad {
				h.verdicts = append(h.verdicts, report.Verdict{Time: e.Time, Text: e.Text})
			}
		}
	}
}

// boardOf returns the ID of a device's board.
func boardOf(d *collector.Device) string {
	if d.Parent != "" {
		return d.Parent
	}
	return d.ID
}
