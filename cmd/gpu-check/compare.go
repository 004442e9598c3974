package main

import (
	"fmt"
	"math"
	"strings"
)

// verdict is the result of one comparison.
type verdict string

const (
	pass      verdict = "ok"
	fail      verdict = "FAIL"
	notThere  verdict = "n/a"       // neither has a value
	oursAlone verdict = "ours only" // this version of nvidia-smi has no value
	missing   verdict = "NOT THERE" // nvidia-smi has a value, the page has none
)

func (v verdict) bad() bool { return v == fail || v == missing }

// round holds outputs taken one after the other: page, nvidia-smi, page.
type round struct {
	before, after page
	smi           map[string]readout
}

// result is one line of the table.
type result struct {
	gpu, metric             string
	ours, theirs, tolerance string
	verdict                 verdict
}

// compareAll runs every check on a GPU.
func compareAll(g gpu, rounds []round) (out []result) {
	for _, c := range checks {
		if r := c.compare(g.uuid, rounds); r.verdict != notThere {
			out = append(out, r)
		}
	}
	return out
}

// compare runs a check on a GPU over the rounds.
func (c check) compare(uuid string, rounds []round) result {
	out := result{metric: c.metric, tolerance: c.tolerance(), verdict: notThere}
	count := map[verdict]int{}
	for _, r := range rounds {
		theirs := c.theirs(r.smi[uuid])
		ours, verdict := c.compareRound(r, uuid, theirs)
		// The line shows the first bad round, or else the last one.
		if count[fail]+count[missing] == 0 {
			out.ours, out.theirs = ours, theirs
		}
		count[verdict]++
	}
	// Some rounds may fail for a moving value, because page and nvidia-smi are not simultaneous.
	allowed := 0
	if c.how == moving {
		allowed = len(rounds) / 3
	}
	switch {
	case count[fail] > allowed:
		out.verdict = fail
	case count[missing] > allowed:
		out.verdict = missing
	case count[pass]+count[fail]+count[missing] > 0:
		out.verdict = pass
	case count[oursAlone] > 0:
		out.verdict = oursAlone
	}
	return out
}

// theirs returns nvidia-smi's value, from the first source that has one.
func (c check) theirs(r readout) string {
	for _, s := range c.sources {
		if v := r[s]; !absent(v) {
			return v
		}
	}
	return ""
}

func (c check) compareRound(r round, uuid, theirs string) (string, verdict) {
	if c.how == text {
		ours := r.after.text(c.metric, uuid)
		return ours, presence(ours != "", theirs != "", strings.EqualFold(ours, theirs))
	}
	a, before := r.before.value(c.metric, uuid)
	b, after := r.after.value(c.metric, uuid)
	want, said := numberOf(theirs)
	if c.scale != 0 {
		want *= c.scale
	}
	ours, slack := "", c.abs+c.rel*math.Abs(want)
	if before && after {
		ours = number(min(a, b))
		if a != b {
			ours += " … " + number(max(a, b))
		}
	}
	return ours, presence(ours != "", said, want >= min(a, b)-slack && want <= max(a, b)+slack)
}

func presence(ours, theirs, equal bool) verdict {
	switch {
	case !ours && !theirs:
		return notThere
	case !theirs:
		return oursAlone
	case !ours:
		return missing
	case equal:
		return pass
	}
	return fail
}

// number formats whole numbers in full and others with three decimal places.
func number(v float64) string {
	if v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

func (c check) tolerance() string {
	if c.how == text {
		return "same text"
	}
	return fmt.Sprintf("± %s ± %g %%", number(c.abs), 100*c.rel)
}

// expectEnergy checks that the energy counter has grown by the mean power, between the first and the last page, which
// are that many seconds apart.
func expectEnergy(g gpu, rounds []round, seconds float64) []result {
	const metric = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
	a, ok := rounds[0].before.value(metric, g.uuid)
	b, also := rounds[len(rounds)-1].after.value(metric, g.uuid)
	if !ok || !also {
		return nil
	}
	var sum float64
	for _, r := range rounds {
		p, _ := r.after.value("DCGM_FI_DEV_POWER_USAGE", g.uuid)
		sum += p
	}
	mean, grown := sum/float64(len(rounds)), (b-a)/1000/seconds
	rel := 0.2 + 1.5/seconds // the samples may be a tick away from the scrapes
	return []result{{
		metric: metric, ours: fmt.Sprintf("%.1f W by its growth", grown), theirs: fmt.Sprintf("%.1f W mean power", mean),
		tolerance: fmt.Sprintf("± 20 W ± %.0f %%", 100*rel), verdict: presence(true, true, math.Abs(grown-mean) <= 20+rel*mean),
	}}
}
