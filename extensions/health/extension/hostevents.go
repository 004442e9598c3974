package extension

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"warpgauge/extensions/health"
	"warpgauge/extensions/health/kernellog"
	"warpgauge/extensions/health/pci"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
	"warpgauge/pkg/session"
)

// engine reports the states of collectors and devices.
type engine interface {
	Status() []session.CollectorStatus
	// Vendor returns the vendor of a collector's devices, or nil for none or several.
	Vendor(collector string) *field.Vendor
	// AwaitOpened returns when every collector has opened its library or failed to.
	AwaitOpened(context.Context)
}

// hostEvents observes devices through the host instead of the vendors' libraries: through the kernel log and the
// PCI bus. faults counts an XID once if both the log and a library report it.
type hostEvents struct {
	observe func(health.Observation)
	events  *events.Bus
	log     *kernellog.Log // nil: the log is not read
	faults  *kernellog.Deduplicator
	missing *missing

	// Data by address, for the goroutine that reads the log.
	devices map[pci.Address]collector.Device
	ports   map[pci.Address]pci.Address // the only board behind a port; zero if there are several
	boards  map[pci.Address]*field.Vendor
	asOf    time.Time
	// unserved holds GPUs that only the log reports, such as those that fell off the bus.
	unserved map[pci.Address]bool
}

// maxUnserved bounds the boards known only from the log, because each has series and may have a verdict. Lines about
// further boards are counted without a board.
const maxUnserved = 64

// newHostEvents returns the observers of the host. They read nothing before their stages run.
func newHostEvents(settings *Settings, c exporter.Core, watch *health.Watch, store *health.Store) *hostEvents {
	w := &hostEvents{
		observe: watch.Observe, events: c.Events, unserved: map[pci.Address]bool{},
		faults: kernellog.NewDeduplicator(max(10*time.Second, 3*c.Config.Interval)),
		missing: &missing{
			engine: c.Engine, bus: pci.NewBus(""), expected: settings.ExpectedGPUs, hidden: hiddenVendors(c.Config, c.Lookup),
			verdicts: c.Verdicts, observe: watch.Observe,
		},
	}
	c.Registry.MustRegister(w.missing)
	auto := settings.KernelLog == KernelLogAuto
	if settings.KernelLog == KernelLogOff || auto && c.Engine.Simulated() { // the kernel has no simulated GPUs
		return w
	}
	o := kernellog.Options{Path: settings.KernelLog, BootID: file.BootID(), Event: w.addKernelEvent, Logger: c.Log}
	if auto {
		o.Path = kernellog.Device
	}
	if store != nil { // a nil *Store would make a non-nil interface
		o.Store = store
	}
	w.log = kernellog.New(o)
	c.Registry.MustRegister(append(w.log.Metrics(), w.faults)...)
	return w
}

// follow reads the kernel log as soon as the devices are known, or after a timeout.
func (w *hostEvents) follow(ctx context.Context) error {
	wctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	w.missing.engine.AwaitOpened(wctx)
	cancel()
	return w.log.Run(ctx)
}

// Admit reports whether to publish an event. It rejects a collector's XID that the kernel log reported before.
func (w *hostEvents) Admit(e events.Event) bool {
	if e.Kind != events.XID || e.Source == health.SourceKernelLog || w.log == nil || !w.log.Up() {
		return true
	}
	at, _ := pci.Parse(e.Device.PCIBusID)
	news := w.faults.AddDriverXID(kernellog.GPU{Address: at, Number: e.Device.GPU}, e.Code, e.Time)
	if !news {
		w.observe(health.Observation{Reason: health.ReasonXID, Code: e.Code, Device: e.Device.ID, PCIBusID: e.Device.PCIBusID, Time: e.Time, Source: e.Source, Confirms: true})
	}
	return news
}

// reasonOf returns the rule for lines of a kind, usually the rule with the kind's name. It returns "" for lines that are only
// counted because they need no action.
func reasonOf(k kernellog.Kind) string {
	switch {
	case k == kernellog.AMDResetDone:
		return health.ReasonReset
	case k == kernellog.RASUncorrected:
		return "ras_error"
	case slices.ContainsFunc(health.Table(), func(r health.Rule) bool { return r.Name == string(k) }):
		return string(k)
	}
	return ""
}

// addKernelEvent processes an event from the kernel log.
func (w *hostEvents) addKernelEvent(e kernellog.Event) {
	d, known := w.find(&e)
	if !known && slices.Contains([]kernellog.Kind{kernellog.AERCorrected, kernellog.AERUncorrected, kernellog.AERFatal}, e.Kind) {
		return // not a GPU or switch
	}
	if at := e.Address.Board(); !known && len(w.unserved) < maxUnserved {
		w.unserved[at] = true
	} else if !known && !w.unserved[at] {
		e.Address = pci.Address{}
	}
	reason, text := reasonOf(e.Kind), detail(&e, d.ID == "")
	if v := w.boards[e.Address.Board()]; d.ID == "" && (v != nil && !w.missing.serving().complete[v] || v == nil && w.missing.hidden[field.VendorNVIDIA]) {
		e.Address = pci.Address{} // the GPU may be deselected, or its vendor's collector is off: no verdict
	}
	news, matched := w.faults.AddKernelEvent(kernellog.GPU{Address: e.Address, Number: d.GPU}, &e)
	located := e.Address != (pci.Address{})
	seen := health.Observation{Reason: reason, Device: d.ID, PCIBusID: e.Address.String(), Time: e.Time, Source: health.SourceKernelLog, Text: e.Text}
	event := events.Event{Time: e.Time, Kind: events.KernelLog, Device: &d, Source: health.SourceKernelLog, Text: e.Text}
	switch {
	case !news && e.Kind == kernellog.XID && health.HasKinds(e.Code) && located: // the line may name the kind
		seen.Reason, seen.Code, seen.Confirms = health.ReasonXID, e.Code, matched
		w.observe(seen)
	case !news:
	case e.Kind == kernellog.XID:
		d.PCIBusID = cmp.Or(d.PCIBusID, e.Address.String())
		event.Kind, event.Code, event.Text, event.Evidence = events.XID, e.Code, text, e.Text
		w.events.Publish(event)
	default:
		if reason != "" && located {
			w.observe(seen)
		}
		if e.Kind != kernellog.AERCorrected && e.Kind != kernellog.RASCorrected {
			event.Bad = reason != "" && e.Kind != kernellog.AMDResetDone
			w.events.Publish(event)
		}
	}
}

// detail returns a line's details about an XID, without its code.
func detail(e *kernellog.Event, unknown bool) (out string) {
	if unknown {
		out += fmt.Sprintf(", of the GPU at %s, which no collector serves", e.Address)
	}
	if who := strings.TrimSpace(strings.TrimSuffix(fmt.Sprintf("%s (%d)", e.Process, e.PID), "(0)")); who != "" {
		out += ", process " + who
	}
	if e.Cause > 0 {
		out += fmt.Sprintf(", caused by XID %d", e.Cause)
	}
	return out
}

// find returns the device of an event, and reports whether it is a GPU or switch of this node. It
// assigns the error of a port to the only board behind the port.
func (w *hostEvents) find(e *kernellog.Event) (d collector.Device, known bool) {
	if time.Since(w.asOf) > 5*time.Second {
		w.asOf = time.Now()
		w.refresh()
	}
	if board, ok := w.ports[e.Address]; ok && board != (pci.Address{}) {
		e.Address = board
	}
	d, served := w.devices[e.Address.Board()]
	return d, served || w.boards[e.Address.Board()] != nil
}

func (w *hostEvents) refresh() {
	w.devices, w.ports, w.boards = map[pci.Address]collector.Device{}, map[pci.Address]pci.Address{}, map[pci.Address]*field.Vendor{}
	for _, c := range w.missing.engine.Status() {
		for i := range c.Devices {
			d := &c.Devices[i].Device
			if at, ok := pci.Parse(d.PCIBusID); ok && session.IsBoard(*d) {
				w.devices[at.Board()] = *d
			}
		}
	}
	boards, _ := w.missing.bus.Boards() // on an error, only collectors supply device addresses
	for _, b := range boards {
		w.boards[b.Address.Board()] = b.Vendor
		if _, shared := w.ports[b.Port]; shared {
			w.ports[b.Port] = pci.Address{}
		} else if b.Port != (pci.Address{}) {
			w.ports[b.Port] = b.Address
		}
	}
}

// hiddenVendors returns the vendors whose GPUs the user's selection or the container may hide.
func hiddenVendors(cfg *config.Config, lookup func(string) (string, bool)) map[*field.Vendor]bool {
	some := !cfg.GPUs.MatchWhole(math.MaxInt)
	out := map[*field.Vendor]bool{}
	for _, v := range field.Vendors() {
		visible, set := lookup(v.Visible)
		hides := set && !slices.Contains([]string{"", "none", "void"}, visible) && !strings.HasSuffix(visible, "all") // such as management.nvidia.com/gpu=all
		out[v] = some || hides && v.Visible != ""
	}
	return out
}
