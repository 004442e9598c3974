package main

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/captures"
	"warpgauge/pkg/field"
)

func TestNumberOf(t *testing.T) {
	for text, want := range map[string]float64{
		"70.12 W": 70.12, " 640 bank(s)": 640, "0x0000000000000104": 0x104, "P8": 8, "16x": 16, "Enabled": 1, "Not Active": 0, "Exclusive_Process": 2, "Pass-Through": 1,
	} {
		if got, ok := numberOf(text); got != want || !ok {
			t.Errorf("numberOf(%q) = %v, %t, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"[N/A]", "Pascal", ""} {
		if got, ok := numberOf(text); ok {
			t.Errorf("numberOf(%q) = %v, want none", text, got)
		}
	}
}

func pageOf(t *testing.T, text string) page {
	t.Helper()
	p := testkit.Get(readPage(strings.NewReader(text)))(t)
	return p
}

func TestCompare(t *testing.T) {
	f := func(c check, want verdict, says string, values ...string) {
		t.Helper()
		c.sources, c.metric = []string{"csv:none", "csv:x"}, cmp.Or(c.metric, "m")
		var rounds []round
		for _, v := range values {
			text := ""
			if v != "" {
				text = `m{gpu="0",UUID="U",NAME="A Board"} ` + v + "\n" + `m{gpu="0",UUID="U",GPU_I_ID="1"} 999` + "\n"
			}
			p := pageOf(t, text)
			rounds = append(rounds, round{before: p, after: p, smi: map[string]readout{"U": {"csv:x": says}}})
		}
		if got := c.compare("U", rounds); got.verdict != want {
			t.Errorf("%+v: %+v, want %q", c, got, want)
		}
	}
	f(check{}, pass, "70.00 W", "70", "70", "70")
	f(check{}, fail, "70.01 W", "70", "70", "70")
	f(check{abs: 0.01}, pass, "70.01 W", "70", "70", "70")
	f(check{rel: 0.1}, pass, "77", "70", "70", "70")
	f(check{}, fail, "70", "70", "71", "70")
	f(check{how: moving}, pass, "70", "70", "99", "70") // one of three fails
	f(check{how: moving}, fail, "70", "99", "99", "70")
	f(check{how: moving}, fail, "70", "70", "99") // one of two fails
	f(check{}, missing, "70", "", "")
	f(check{}, oursAlone, "[N/A]", "70")
	f(check{}, notThere, "[N/A]", "")
	f(check{scale: 1000}, pass, "7", "7000")
	f(check{metric: "NAME", how: text}, pass, "A Board", "1")
	f(check{metric: "NAME", how: text}, fail, "Another", "1")

	between := round{before: pageOf(t, `m{UUID="U"} 100`+"\n"), after: pageOf(t, `m{UUID="U"} 50`+"\n"), smi: map[string]readout{"U": {"csv:x": "75"}}}
	if got := (check{metric: "m", sources: []string{"csv:x"}}).compare("U", []round{between}); got.verdict != pass || got.ours != "50 … 100" {
		t.Errorf("between two pages: %+v", got)
	}
}

// TestXML checks that of several elements with the same path, as of processes, the first is read.
func TestXML(t *testing.T) {
	all := testkit.Get(parseXML([]byte(`<?xml version="1.0" ?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd"><nvidia_smi_log><gpu><uuid>U</uuid>` +
		`<processes><process_info><pid>7</pid></process_info><process_info><pid>8</pid></process_info></processes></gpu></nvidia_smi_log>`)))(t)
	testkit.Equal(t, "of several processes: is read", "7", all["U"]["xml:processes/process_info/pid"])
}

// TestReport checks that each bad result has a line, and that good results of a field share one.
func TestReport(t *testing.T) {
	r := &report{gpus: []gpu{{name: "Board"}}}
	for i, v := range []verdict{pass, fail, pass, missing} {
		r.add(gpu{index: i}, result{metric: "m", verdict: v})
	}
	var b bytes.Buffer
	testkit.Must(t, r.print(&b))
	if text := b.String(); strings.Count(text, "| m ") != 3 || !strings.Contains(text, "FAIL (2): 2 agree, 1 differ, 1 not there") || strings.Contains(text, banner) {
		t.Errorf("report:\n%s", text)
	}
}

// TestCaptures uses captured nvidia-smi output as input, for both nvidia-smi and the page. The words and units must
// parse, from CSV and XML, and each value must be in the exporter's plausible range.
func TestCaptures(t *testing.T) {
	models, compared := map[string]bool{}, map[string]bool{}
	for _, b := range captures.NVIDIA(t) {
		models[b.First("xml:product_name", "csv:name")] = true
		readings := readout(b.Readings)
		var lines strings.Builder
		values := 0
		for _, c := range checks {
			if c.how == text {
				continue
			}
			desc, scale, known := field.ByName(c.metric)
			for _, source := range c.sources {
				said := readings[source]
				v, ok := numberOf(said)
				if !known || absent(said) {
					continue
				}
				compared[c.metric] = true
				if v *= scale * cmp.Or(c.scale, 1); !ok || v < desc.Min || v > desc.Max || math.IsNaN(v) {
					t.Errorf("%s: %s is %v by %s %q, outside of %v to %v (%s)", b.Name, c.metric, v, source, said, desc.Min, desc.Max, b.Source)
				}
			}
			if v, ok := numberOf(c.theirs(readings)); ok {
				fmt.Fprintf(&lines, "%s{UUID=\"U\"} %v\n", c.metric, v*cmp.Or(c.scale, 1))
				values++
			}
		}
		p := pageOf(t, lines.String())
		agree := 0
		for _, r := range compareAll(gpu{uuid: "U"}, []round{{p, p, map[string]readout{"U": readings}}}) {
			if r.verdict == pass {
				agree++
			} else if r.tolerance != "same text" {
				t.Errorf("%s: %+v (%s)", b.Name, r, b.Source)
			}
		}
		if agree != values || values < 10 {
			t.Errorf("%s: %d of %d values agree (%s)", b.Name, agree, values, b.Source)
		}
	}
	if len(models) < 20 || len(compared) < 50 {
		t.Errorf("%d models and %d fields, want at least 20 and 50", len(models), len(compared))
	}
}
