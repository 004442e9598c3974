package main

import (
	"warpgauge/extensions/health/signs"
)

// newSigns makes what computes early signs. What crosses a threshold is an observation of
// health, whose rules can be switched off.
func (p *pipeline) newSigns() *signs.Signs {
	o := signs.Options{Rows: p.rows, Observe: p.health.Observe, Calls: p.engine.sampleTimes, Registerer: p.registry}
	if p.owners != nil { // a nil *Keeper in the interface would not be nil
		o.Owners = p.owners.keeper
	}
	return signs.New(o)
}

// sampleTimes reports how long samples of each source have taken in its library.
func (e *engine) sampleTimes(report func(collector, source string, count uint64, seconds float64)) {
	for _, s := range e.collectors {
		s.SampleTimes(func(source string, count uint64, seconds float64) { report(s.Name(), source, count, seconds) })
	}
}
