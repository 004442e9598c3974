package fake

import (
	"strings"

	"warpgauge/pkg/field"
)

// generic makes a value for a field that nothing above knows, from its unit: a
// plausible one that moves where its kind moves. What has no unit is a flag or
// a count of troubles, and is 0.
func (g *gpu) generic(d *field.Descriptor) (cell, bool) {
	c, ok := g.byUnit(d)
	low, high := c.a, c.a+c.b
	if ok && c.op < firstCounter && c.op != clock && (min(low, high) < d.Min || max(low, high) > d.Max) {
		return fixed(max(d.Min, 0))
	}
	return c, ok
}

func (g *gpu) byUnit(d *field.Descriptor) (cell, bool) {
	switch d.Unit {
	case "%":
		return linear(byLoad, 0, 100*g.mix.smActive)
	case "ratio":
		return linear(byLoad, 0, g.mix.smActive)
	case "MHz":
		return cell{op: clock, a: g.idleMHz, b: g.maxMHz, c: g.cappedMHz}, true
	case "celsius":
		return linear(byWarmth, g.idleCelsius, g.hotCelsius-g.idleCelsius)
	case "W":
		return linear(byPower, g.idleWatts, g.limitWatts-g.idleWatts)
	case "mJ", "J":
		k := perJoule(d.Unit)
		return cell{op: drawn, b: k * (g.limitWatts - g.idleWatts), c: k * g.idleWatts}, true
	}
	switch {
	case strings.HasSuffix(d.Unit, "/s"):
		return linear(byLoad, 0, perByte(d.Unit)*1e9)
	case strings.HasSuffix(d.Unit, "B") || d.Unit == "bytes":
		return linear(worked, 0, perByte(d.Unit)*1e9)
	}
	return fixed(0)
}
