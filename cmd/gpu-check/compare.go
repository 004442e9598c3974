package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// verdict of one comparison.
type verdict string

const (
	pass        verdict = "ok"
	fail        verdict = "FAIL"
	notThere    verdict = "n/a"       // neither has it
	oursAlone   verdict = "ours only" // nvidia-smi of this version does not say
	missing     verdict = "NOT THERE" // nvidia-smi has it, we do not
	uncomparing verdict = "no counterpart"
)

func (v verdict) bad() bool { return v == fail || v == missing }

// round holds outputs of about the same moment: our page, nvidia-smi, our page.
type round struct {
	before, after page
	smi           map[string]readout
	at            time.Time // when nvidia-smi had answered
}

// result is one line of the table.
type result struct {
	phase, gpu, metric string
	ours, theirs       string
	tolerance          string
	verdict            verdict
}

// compare judges a check of a part over the rounds of a phase.
func (c check) compare(phase string, of part, rounds []round) result {
	out := result{phase: phase, metric: c.name(), tolerance: c.tolerance()}
	count := map[verdict]int{}
	for _, r := range rounds {
		theirs, said := c.theirs(r.smi[of.uuid], of)
		ours, verdict := c.judge(r, of, theirs, said)
		// The line shows the first round that is bad, else the last one.
		if count[fail]+count[missing] == 0 {
			out.ours, out.theirs = ours, theirs
		}
		count[verdict]++
	}
	// A moving value may be off once in a while: the moments differ.
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
	default:
		out.verdict = notThere
	}
	return out
}

// name is the field's with the label that tells its series apart.
func (c check) name() string {
	if c.with[0] == "" {
		return c.metric
	}
	return fmt.Sprintf("%s{%s=%q}", c.metric, c.with[0], c.with[1])
}

// theirs returns nvidia-smi's value, from the first source that has one.
func (c check) theirs(r readout, of part) (string, bool) {
	for _, s := range c.sources {
		if of.of != board {
			s = of.of.prefix() + of.number + ":" + s
		}
		v, ok := r[s]
		if s == "cuda" {
			v, ok = cudaVersion(r["xml:cuda_version"])
		}
		if ok && !absent(v) {
			return v, true
		}
	}
	return "", false
}

// cudaVersion turns "12.4" into "12040".
func cudaVersion(text string) (string, bool) {
	var major, minor int
	if _, err := fmt.Sscanf(text, "%d.%d", &major, &minor); err != nil {
		return "", false
	}
	return fmt.Sprint(major*1000 + minor*10), true
}

func (c check) judge(r round, of part, theirs string, said bool) (string, verdict) {
	if c.how == text {
		ours, ok := r.after.text(c.metric, of)
		return ours, presence(ok, said, func() bool { return strings.EqualFold(ours, theirs) })
	}
	a, before := r.before.valueOf(c.metric, of, c.with)
	b, after := r.after.valueOf(c.metric, of, c.with)
	want, number := numberOf(theirs)
	if c.scale != 0 {
		want *= c.scale
	}
	ok := before && after
	ours := ""
	if ok {
		ours = span(a, b)
	}
	return ours, presence(ok, said && number, func() bool {
		slack := c.abs + c.rel*math.Abs(want)
		return want >= min(a, b)-slack && want <= max(a, b)+slack
	})
}

func presence(ours, theirs bool, equal func() bool) verdict {
	switch {
	case !ours && !theirs:
		return notThere
	case !theirs:
		return oursAlone
	case !ours:
		return missing
	case equal():
		return pass
	}
	return fail
}

func span(a, b float64) string {
	if a == b {
		return number(a)
	}
	return number(min(a, b)) + " … " + number(max(a, b))
}

// number writes whole numbers in full and others with three digits behind the
// point.
func number(v float64) string {
	if v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

func (c check) tolerance() string {
	switch {
	case c.how == text:
		return "same text"
	case c.abs == 0 && c.rel == 0:
		return "equal"
	case c.rel == 0:
		return "± " + number(c.abs)
	}
	return fmt.Sprintf("± %s ± %g %%", number(c.abs), 100*c.rel)
}

// compareAll judges every check on every GPU and its parts, and names the series that
// have no counterpart.
func compareAll(phase string, gpus []gpu, rounds []round) []result {
	var out []result
	for _, g := range gpus {
		last := rounds[len(rounds)-1]
		parts := []part{{uuid: g.uuid}}
		for _, of := range []scope{instance, link} {
			for _, number := range last.smi[g.uuid].parts(of) {
				parts = append(parts, part{g.uuid, of, number})
			}
		}
		known := make(map[string]bool)
		for _, of := range parts {
			for _, c := range checks {
				if c.of != of.of {
					continue
				}
				known[c.metric] = true
				r := c.compare(phase, of, rounds)
				r.gpu = of.name(g)
				if r.verdict != notThere {
					out = append(out, r)
				}
			}
		}
		names := last.after.series(g.uuid)
		for _, name := range sorted(names) {
			if !known[name] && name != healthMetric {
				v, _ := last.after.value(name, g.uuid)
				out = append(out, result{phase: phase, gpu: g.index, metric: name, ours: series(v, names[name]), verdict: uncomparing})
			}
			for _, of := range []scope{instance, link} {
				if n := last.after.partsOf(name, g.uuid, of); n > 0 && known[name] && len(last.smi[g.uuid].parts(of)) == 0 {
					out = append(out, result{phase: phase, gpu: g.index, metric: name + " by " + of.label(), ours: series(0, n), verdict: uncomparing})
				}
			}
		}
	}
	return out
}

// name says which part of a GPU it is.
func (p part) name(g gpu) string {
	return strings.TrimSpace(g.index + " " + [...]string{board: "", instance: "GI ", link: "link "}[p.of] + p.number)
}

func series(v float64, count int) string {
	if count > 1 {
		return fmt.Sprintf("%d series", count)
	}
	return number(v)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
