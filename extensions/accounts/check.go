package accounts

import (
	"fmt"
	"math"
	"slices"
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
	tell := func(a *account, idle bool) {
		if a.idle != idle {
			a.idle = idle
			d := a.board.device
			out = append(out, events.Event{Kind: events.Idle, Time: now, Device: &d, Source: "accounts", Bad: idle, Text: idleText(a)})
		}
	}
	for _, b := range l.boards {
		present := slices.Collect(b.present())
		for _, h := range present {
			if h.owner.Kind != report.KindPod && h.owner.Kind != report.KindJob {
				continue
			}
			u, known := used.Devices[h.device]
			if !known {
				u, known = used.Devices[b.device.ID]
			}
			h.use = noUsage
			if known {
				h.use = usageOf(l.o.Owners, h.owner, present, &u)
			}
			tell(h.account, h.unused() >= l.o.IdleAfter)
		}
	}
	for _, a := range l.accounts {
		if a.left > 0 {
			tell(a, false)
		}
	}
	return out
}

// usageOf adds up what the processes of an owner do on a device. The containers of a pod have equal parts.
func usageOf(owners Owners, o report.Owner, present []*holder, u *owner.DeviceUse) usage {
	if u.Partial || o.Kind == report.KindPod && o.UID == "" && len(u.Processes) > 0 {
		return noUsage
	}
	out, unplaced, containers := usage{}, !u.Complete, 0.0
	for _, h := range present {
		if o.Kind == h.owner.Kind && o.Namespace == h.owner.Namespace && o.Pod == h.owner.Pod && o.Job == h.owner.Job {
			containers++
		}
	}
	for i := range u.Processes {
		p := &u.Processes[i]
		pod := owners.Pod(p.PodUID)
		switch {
		case runs(&o, p, pod):
			out.processes++
			out.busy += p.Process.Busy / 100 / containers
			out.memory += p.Memory / containers
		case pod == "" && !slices.ContainsFunc(present, func(h *holder) bool { return runs(&h.owner, p, pod) }):
			unplaced = true // it may be the owner's
		}
	}
	switch {
	case unplaced && out.processes == 0:
		return noUsage
	case unplaced:
		out.busy, out.memory = math.NaN(), math.NaN()
	}
	return out
}

// runs reports whether a process of a pod, if any, is the owner's.
func runs(o *report.Owner, p *owner.Process, pod string) bool {
	return o.Kind == report.KindJob && p.Job == o.Job || o.Kind == report.KindPod && pod == o.Namespace+"/"+o.Pod
}

func idleText(a *account) string {
	name := "job " + a.owner.Job
	if a.owner.Kind == report.KindPod {
		name = "pod " + a.owner.Namespace + "/" + a.owner.Pod
	}
	switch {
	case a.left > 0:
		return name + " has left the GPU"
	case !a.idle:
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
