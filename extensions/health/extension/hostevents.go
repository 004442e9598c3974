package extension

import (
	"context"
	"fmt"
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
	"warpgauge/pkg/session"
)

// Sources of observations that are not collectors.
const (
	sourceKernelLog = "kernel log"
	sourcePCI       = "pci"
)

// engine reports the states of collectors and of their devices.
type engine interface {
	Status() []session.CollectorStatus
	// Vendor returns the vendor of a collector's devices; nil: none or several.
	Vendor(collector string) *field.Vendor
	// AwaitOpened returns when every collector has opened its library, or has failed to.
	AwaitOpened(context.Context)
}

// hostEvents observes devices through the host instead of the vendors' libraries: the kernel's log and the PCI bus.
// The ledger counts an XID once that both the log and a library report.
type hostEvents struct {
	engine  engine
	observe func(health.Observation)
	events  *events.Bus
	log     *kernellog.Log // nil: not read
	ledger  *kernellog.Ledger
	missing *missing
	bus     pci.Bus

	// What is known of addresses, of the goroutine that reads the log.
	devices map[pci.Address]collector.Device
	ports   map[pci.Address]pci.Address // boards by the port that only they are behind; zero: several
	boards  map[pci.Address]bool
	asOf    time.Time
	// unserved are GPUs that only the log knows, such as those that have fallen off the bus.
	unserved map[pci.Address]bool
}

// maxUnserved is how many boards the log alone can name, because each has series, and may have a verdict. Lines about
// further boards count for no board.
const maxUnserved = 64

// newHostEvents returns the second sources. Nothing is read before their stages run.
func newHostEvents(settings *Settings, c exporter.Core, watch *health.Watch, directory string) *hostEvents {
	w := &hostEvents{
		engine: c.Engine, observe: watch.Observe, events: c.Events, bus: pci.NewBus(""), unserved: map[pci.Address]bool{},
		ledger: kernellog.NewLedger(max(10*time.Second, 3*c.Config.Interval)),
	}
	w.missing = &missing{
		engine: c.Engine, bus: w.bus, expected: settings.ExpectedGPUs, hidden: hiddenVendors(c.Config, c.Lookup), verdicts: c.Verdicts, observe: watch.Observe,
	}
	c.Registry.MustRegister(w.missing)
	path := settings.KernelLog
	if path == KernelLogAuto {
		path = kernellog.Device
		if c.Engine.Simulated() {
			path = KernelLogOff // the kernel knows nothing of simulated GPUs
		}
	}
	if path != KernelLogOff {
		w.log = kernellog.New(kernellog.Options{Path: path, Directory: directory, BootID: health.BootID(), Event: w.addKernelEvent, Logger: c.Log})
		c.Registry.MustRegister(w.log, w.ledger)
	}
	return w
}

func (w *hostEvents) stages() []exporter.Stage {
	out := []exporter.Stage{stage("GPUs on the PCI bus", w.missing.run)}
	if w.log != nil {
		out = append(out, stage("kernel log", w.follow))
	}
	return out
}

// follow reads the kernel's log once the devices are known, or after some time.
func (w *hostEvents) follow(ctx context.Context) error {
	wctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	w.engine.AwaitOpened(wctx)
	cancel()
	return w.log.Run(ctx)
}

// Admit reports whether an event is to be published: an XID that a collector reports is not
// if the kernel's log had it before.
func (w *hostEvents) Admit(e events.Event) bool {
	if e.Kind != events.XID || e.Source == sourceKernelLog || w.log == nil || !w.log.Up() {
		return true
	}
	at, _ := pci.Parse(e.Device.PCIBusID)
	return w.ledger.Driver(kernellog.GPU{Address: at, Number: e.Device.GPU}, e.Code, e.Time)
}

// reasonOf returns the rule that lines of a kind are evidence for, which mostly has the name of the kind; "" if there is none:
// the line is counted, and says nothing that needs an action.
func reasonOf(k kernellog.Kind) string {
	switch {
	case k == kernellog.AMDResetDone:
		return health.ReasonReset
	case k == kernellog.RASUncorrected:
		return "ras_error"
	case health.Table().Has(string(k)):
		return string(k)
	}
	return ""
}

// addKernelEvent reports an event of the kernel's log.
func (w *hostEvents) addKernelEvent(e kernellog.Event) {
	d, known := w.find(&e)
	errorOfBus := e.Kind == kernellog.AERCorrected || e.Kind == kernellog.AERUncorrected || e.Kind == kernellog.AERFatal
	if errorOfBus && !known {
		return // of another device than a GPU or switch
	}
	if at := e.Address.Board(); !known && !w.unserved[at] {
		if len(w.unserved) < maxUnserved {
			w.unserved[at] = true
		} else {
			e.Address = pci.Address{}
		}
	}
	if !w.ledger.Kernel(kernellog.GPU{Address: e.Address, Number: d.GPU}, &e) {
		return
	}
	event := events.Event{Time: e.Time, Kind: events.KernelLog, Device: &d, Source: sourceKernelLog, Text: e.Text}
	reason := reasonOf(e.Kind)
	switch {
	case e.Kind == kernellog.XID:
		event.Kind, event.Code, event.Text, event.Evidence = events.XID, e.Code, detail(&e, d.ID == ""), e.Text
		if d.PCIBusID == "" {
			d.PCIBusID = e.Address.String()
		}
		w.events.Publish(event)
		return
	case reason != "" && e.Address != (pci.Address{}):
		w.observe(health.Observation{
			Reason: reason, Device: d.ID, PCIBusID: e.Address.String(), Time: e.Time, Source: sourceKernelLog, Text: e.Text,
		})
	}
	if e.Kind != kernellog.AERCorrected && e.Kind != kernellog.RASCorrected {
		event.Bad = reason != "" && e.Kind != kernellog.AMDResetDone
		w.events.Publish(event)
	}
}

// detail returns a line's information about an XID, without its code.
func detail(e *kernellog.Event, unknown bool) (out string) {
	if unknown {
		out += fmt.Sprintf(", of the GPU at %s, which no collector serves", e.Address)
	}
	if e.Process != "" || e.PID > 0 {
		out += fmt.Sprintf(", process %s (%d)", e.Process, e.PID)
	}
	if e.Cause > 0 {
		out += fmt.Sprintf(", caused by XID %d", e.Cause)
	}
	return out
}

// find returns the device of an event, and reports whether it is of a GPU or switch of this
// node. An error that the port reports which a board is connected to is the board's.
func (w *hostEvents) find(e *kernellog.Event) (d collector.Device, known bool) {
	if now := time.Now(); w.devices == nil || now.Sub(w.asOf) > 5*time.Second {
		w.asOf = now
		w.refresh()
	}
	if board, ok := w.ports[e.Address]; ok && board != (pci.Address{}) {
		e.Address = board
	}
	d, served := w.devices[e.Address.Board()]
	return d, served || w.boards[e.Address.Board()]
}

func (w *hostEvents) refresh() {
	w.devices, w.ports, w.boards = map[pci.Address]collector.Device{}, map[pci.Address]pci.Address{}, map[pci.Address]bool{}
	for _, c := range w.engine.Status() {
		for i := range c.Devices {
			d := &c.Devices[i].Device
			if at, ok := pci.Parse(d.PCIBusID); ok && session.IsBoard(*d) {
				w.devices[at.Board()] = *d
			}
		}
	}
	boards, _ := w.bus.Boards() // none: addresses of devices are known from collectors alone
	for _, b := range boards {
		w.boards[b.Address.Board()] = true
		if _, shared := w.ports[b.Port]; shared {
			w.ports[b.Port] = pci.Address{}
		} else if b.Port != (pci.Address{}) {
			w.ports[b.Port] = b.Address
		}
	}
}

// hiddenVendors returns the vendors with GPUs that the user's selection excludes, or that
// the container hides.
func hiddenVendors(cfg *config.Config, lookup func(string) (string, bool)) map[*field.Vendor]bool {
	named, _ := cfg.GPUs.Named()
	some := len(named) > 0 || !cfg.GPUs.MatchWhole(0)
	out := map[*field.Vendor]bool{}
	for _, v := range field.Vendors() {
		visible, set := lookup(v.Visible)
		hides := set && !slices.Contains([]string{"", "none", "void"}, visible) && !strings.HasSuffix(visible, "all") // management.nvidia.com/gpu=all
		out[v] = some || hides && v.Visible != ""
	}
	return out
}
