package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNumberOf(t *testing.T) {
	f := func(text string, want float64, ok bool) {
		t.Helper()
		if got, is := numberOf(text); got != want || is != ok {
			t.Errorf("numberOf(%q) = %v, %t, want %v, %t", text, got, is, want, ok)
		}
	}
	f("70.12 W", 70.12, true)
	f(" 640 bank(s)", 640, true)
	f("0x0000000000000104", 0x104, true)
	f("P8", 8, true)
	f("16x", 16, true)
	f("Enabled", 1, true)
	f("Not Active", 0, true)
	f("Exclusive_Process", 2, true)
	f("Prohibited", 1, true)
	f("Pass-Through", 1, true)
	f("[N/A]", 0, false)
	f("Pascal", 0, false)
	f("", 0, false)
}

func TestParseCSV(t *testing.T) {
	got, err := parseCSV([]byte("GPU-1, NVIDIA H100 80GB HBM3, 70.12 W\nGPU-2, NVIDIA H100 80GB HBM3, [N/A]\n"), []string{"uuid", "name", "power.draw"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]readout{
		"GPU-1": {"csv:uuid": "GPU-1", "csv:name": "NVIDIA H100 80GB HBM3", "csv:power.draw": "70.12 W"},
		"GPU-2": {"csv:uuid": "GPU-2", "csv:name": "NVIDIA H100 80GB HBM3", "csv:power.draw": "[N/A]"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := parseCSV([]byte("GPU-1, x\n"), []string{"uuid"}); err == nil {
		t.Error("a line with too many values is taken")
	}
}

func TestParseXML(t *testing.T) {
	const text = `<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<driver_version>550.54.15</driver_version>
	<cuda_version>12.4</cuda_version>
	<gpu id="00000000:1B:00.0">
		<uuid>GPU-1</uuid>
		<temperature><gpu_temp>31 C</gpu_temp><memory_temp>N/A</memory_temp></temperature>
		<processes><process_info><pid>7</pid></process_info><process_info><pid>8</pid></process_info></processes>
	</gpu>
	<gpu id="00000000:43:00.0"><uuid>GPU-2</uuid></gpu>
</nvidia_smi_log>`
	got, err := parseXML([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]readout{
		"GPU-1": {
			"xml:driver_version": "550.54.15", "xml:cuda_version": "12.4", "xml:uuid": "GPU-1", "xml:temperature/gpu_temp": "31 C",
			"xml:temperature/memory_temp": "N/A", "xml:processes/process_info/pid": "7",
		},
		"GPU-2": {"xml:driver_version": "550.54.15", "xml:cuda_version": "12.4", "xml:uuid": "GPU-2"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestUnknownProperty(t *testing.T) {
	err := &smiError{errors.New("exit status 2"), "Field \"clocks_event_reasons.active\" is not a valid field to query.\n\n"}
	if got := unknownProperty(err); got != "clocks_event_reasons.active" {
		t.Errorf("got %q", got)
	}
	if got := unknownProperty(errors.New("something else")); got != "" {
		t.Errorf("got %q", got)
	}
}

func pageOf(t *testing.T, text string) page {
	t.Helper()
	p, err := readPage(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCompare(t *testing.T) {
	rounds := func(says string, values ...string) (out []round) {
		for _, v := range values {
			text := ""
			if v != "" {
				text = `m{gpu="0",UUID="U",NAME="A Board"} ` + v + "\n" + `m{gpu="0",UUID="U",GPU_I_ID="1"} 999` + "\n"
			}
			p := pageOf(t, text)
			out = append(out, round{before: p, after: p, smi: map[string]readout{"U": {"csv:x": says}}})
		}
		return out
	}
	f := func(c check, rounds []round, want verdict) {
		t.Helper()
		c.sources = []string{"csv:none", "csv:x"}
		if c.metric == "" {
			c.metric = "m"
		}
		if got := c.compare("idle", part{uuid: "U"}, rounds); got.verdict != want {
			t.Errorf("%+v: %+v, want %q", c, got, want)
		}
	}
	f(check{}, rounds("70.00 W", "70", "70", "70"), pass)
	f(check{}, rounds("70.01 W", "70", "70", "70"), fail)
	f(check{abs: 0.01}, rounds("70.01 W", "70", "70", "70"), pass)
	f(check{rel: 0.1}, rounds("77", "70", "70", "70"), pass)
	f(check{}, rounds("70", "70", "71", "70"), fail)
	f(check{how: moving}, rounds("70", "70", "99", "70"), pass) // one of three
	f(check{how: moving}, rounds("70", "99", "99", "70"), fail)
	f(check{how: moving}, rounds("70", "70", "99"), fail) // one of two
	f(check{}, rounds("70", "", ""), missing)
	f(check{}, rounds("[N/A]", "70"), oursAlone)
	f(check{}, rounds("[N/A]", ""), notThere)
	f(check{scale: 1000}, rounds("7", "7000"), pass)
	f(check{metric: "NAME", how: text}, rounds("A Board", "1"), pass)
	f(check{metric: "NAME", how: text}, rounds("Another", "1"), fail)
}

func TestValueBetweenPages(t *testing.T) {
	c := check{metric: "m", sources: []string{"csv:x"}, abs: 1}
	r := round{before: pageOf(t, `m{UUID="U"} 100`+"\n"), after: pageOf(t, `m{UUID="U"} 50`+"\n"), smi: map[string]readout{"U": {"csv:x": "75"}}}
	got := c.compare("idle", part{uuid: "U"}, []round{r})
	if got.verdict != pass || got.ours != "50 … 100" {
		t.Errorf("%+v", got)
	}
}

func TestExpectLoadFails(t *testing.T) {
	g := gpu{index: "0", uuid: "U"}
	const head = `DCGM_FI_DEV_ENFORCED_POWER_LIMIT{UUID="U"} 700
DCGM_FI_DEV_MAX_SM_CLOCK{UUID="U"} 1980
DCGM_FI_DEV_GPM_SUPPORT{UUID="U"} 1
DCGM_FI_DEV_POWER_USAGE{UUID="U"} `
	idle, busy := pageOf(t, head+"70\n"), pageOf(t, head+"120\n"+`DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="U"} 0.5`+"\n")
	got := make(map[string]verdict)
	for _, r := range expectLoad("load", halfKernel, g, idle, busy) {
		got[r.metric] = r.verdict
	}
	want := map[string]verdict{
		"DCGM_FI_DEV_GPU_UTIL": missing, "DCGM_FI_DEV_POWER_USAGE": fail, "DCGM_FI_DEV_SM_CLOCK": missing, "DCGM_FI_PROF_GR_ENGINE_ACTIVE": fail,
		"DCGM_FI_PROF_SM_ACTIVE": missing, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": missing,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestLines(t *testing.T) {
	in := []result{
		{phase: "idle", gpu: "0", metric: "a", verdict: pass}, {phase: "idle", gpu: "0", metric: "b", verdict: pass}, {phase: "idle", gpu: "0", metric: "c", verdict: uncomparing},
		{phase: "idle", gpu: "1", metric: "a", verdict: pass}, {phase: "idle", gpu: "1", metric: "b", verdict: fail},
		{phase: "idle", gpu: "2", metric: "a", verdict: pass},
	}
	var got []string
	for _, x := range lines(in, false) {
		got = append(got, x.gpu+x.metric+string(x.verdict))
	}
	if d := cmp.Diff([]string{"0…2aok", "0bok", "1bFAIL"}, got); d != "" {
		t.Error(d)
	}
	if n := len(lines(in, true)); n != len(in) {
		t.Errorf("all: %d lines", n)
	}
}

func TestReportOfFailure(t *testing.T) {
	r := &record{gpus: []gpu{{index: "0", name: "Board"}}, results: []result{{phase: "idle", gpu: "0", metric: "m", verdict: fail}}, loads: []loadResult{{err: errors.New("no")}}}
	var b bytes.Buffer
	if err := printReport(&b, r, false); err != nil {
		t.Fatal(err)
	}
	if r.failed() != 2 || !strings.Contains(b.String(), "FAIL (2): 0 agree, 1 differ") || strings.Contains(b.String(), banner) {
		t.Errorf("%d, %s", r.failed(), &b)
	}
}

func TestSamePCI(t *testing.T) {
	f := func(a, b string, want bool) {
		t.Helper()
		if got := samePCI(a, b); got != want {
			t.Errorf("samePCI(%q, %q) = %t", a, b, got)
		}
	}
	f("00000000:1B:00.0", "0000:1b:00.0", true)
	f("00000001:1B:00.0", "0000:1b:00.0", false)
	f("00000000:1B:00.0", "0000:1c:00.0", false)
}
