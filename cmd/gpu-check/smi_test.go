package main

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"warpgauge/internal/testkit/captures"
	"warpgauge/pkg/field"
)

// TestParseLinks: states as in the captures of https://github.com/utkuozdemir/nvidia_gpu_exporter
// (internal/captures: an H100, and an H200 in MIG mode), counters by the names that nvidia-smi prints.
func TestParseLinks(t *testing.T) {
	const h100 = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
	const mig = "GPU 0: NVIDIA H200 (UUID: GPU-a)\nNvlink queries are not supported for Devices in MIG mode\n"
	const errorsOf = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)\n         Link 0: Replay Errors: 3\n         Link 0: Recovery Errors: 0\n         Link 0: CRC Errors: 7\n"
	const traffic = "GPU 3: Tesla V100-SXM3-32GB (UUID: GPU-b)\n\t Link 0: Data Tx: 19241022 KiB\n\t Link 0: Data Rx: 19255516 KiB\n"
	f := func(text string, want map[string]readout) {
		t.Helper()
		if d := gocmp.Diff(want, parseLinks([]byte(text))); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
	}
	f(h100, map[string]readout{"GPU-a": {"link:0:state": "Active", "link:1:state": "Not Active"}})
	f(mig, map[string]readout{"GPU-a": {}})
	f(errorsOf, map[string]readout{"GPU-a": {"link:0:Replay Errors": "3", "link:0:Recovery Errors": "0", "link:0:CRC Errors": "7"}})
	f(traffic, map[string]readout{"GPU-b": {"link:0:Data Tx": "19241022 KiB", "link:0:Data Rx": "19255516 KiB"}})
	f("", map[string]readout{})
}

// The H200 in MIG mode of the same captures: two compute instances in one GPU
// instance share its memory.
const (
	migXML = `<nvidia_smi_log><gpu id="00000000:83:00.0"><uuid>GPU-a</uuid><mig_devices>
<mig_device><index>0</index><gpu_instance_id>2</gpu_instance_id><compute_instance_id>0</compute_instance_id>
<fb_memory_usage><total>71424 MiB</total><reserved>0 MiB</reserved><used>22 MiB</used><free>71403 MiB</free></fb_memory_usage></mig_device>
<mig_device><index>1</index><gpu_instance_id>2</gpu_instance_id><compute_instance_id>1</compute_instance_id>
<fb_memory_usage><total>71424 MiB</total><reserved>0 MiB</reserved><used>22 MiB</used><free>71403 MiB</free></fb_memory_usage></mig_device>
<mig_device><index>2</index><gpu_instance_id>3</gpu_instance_id><compute_instance_id>0</compute_instance_id>
<fb_memory_usage><total>33280 MiB</total><reserved>0 MiB</reserved><used>17 MiB</used><free>33264 MiB</free></fb_memory_usage></mig_device>
</mig_devices><fb_memory_usage><total>143771 MiB</total></fb_memory_usage></gpu></nvidia_smi_log>`
	migList = "GPU 0: NVIDIA H200 (UUID: GPU-a)\n  MIG 1c.3g.71gb  Device  0: (UUID: MIG-0)\n  MIG 2c.3g.71gb  Device  1: (UUID: MIG-1)\n  MIG 2g.35gb     Device  2: (UUID: MIG-2)\n"
)

// script is a program in nvidia-smi's place: answers by the arguments.
func script(t *testing.T, answers map[string]string) *smi {
	t.Helper()
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("#!/bin/sh\ncase \"$*\" in\n")
	i := 0
	for args, answer := range answers {
		i++
		file := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(file, []byte(answer), 0o600); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s) cat %s ;;\n", args, file)
	}
	b.WriteString("*) echo \"Failed to process command line.\"; exit 6 ;;\nesac\n")
	path := filepath.Join(dir, "nvidia-smi")
	if err := os.WriteFile(path, []byte(b.String()), 0o700); err != nil {
		t.Fatal(err)
	}
	return &smi{path: path, queries: []string{"uuid", "memory.total", "gpu_recovery_action"}}
}

const csvAnswer = "GPU-a, 143771 MiB, None\n"

func TestAsk(t *testing.T) {
	s := script(t, map[string]string{
		"--query-gpu=*": csvAnswer, `"-q -x"`: migXML, "-L": migList,
		`"nvlink -s"`: "GPU 0: NVIDIA H200 (UUID: GPU-a)\n\t Link 4: 26.562 GB/s\n", `"nvlink -e"`: "GPU 0: NVIDIA H200 (UUID: GPU-a)\n\t Link 4: Rx Errors: 2\n",
	})
	all, silent, err := s.ask(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(silent) != 1 || silent["nvlink -gt d"] == nil {
		t.Errorf("silent: %v", silent)
	}
	rounds := []round{{smi: all, after: pageOf(t, `DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",GPU_I_PROFILE="3g.71gb",GPU_I_ID="2"} 22
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",GPU_I_PROFILE="2g.35gb",GPU_I_ID="3"} 900
DCGM_FI_DEV_FB_TOTAL{gpu="0",UUID="GPU-a"} 143771
DCGM_FI_DEV_NVLINK_GET_STATE{nvlink="4",gpu="0",gpu_uuid="GPU-a"} 1
nvidia_nvlink_errors_total{nvlink="4",gpu="0",gpu_uuid="GPU-a",kind="symbol"} 9
nvidia_nvlink_errors_total{nvlink="4",gpu="0",gpu_uuid="GPU-a",kind="receive"} 2
DCGM_EXP_GPU_HEALTH_STATUS{gpu="0",UUID="GPU-a",health_watch="DRIVER",health_error_code="DCGM_FR_GPU_RECOVERY_RESET"} 20
DCGM_EXP_GPU_HEALTH_STATUS{gpu="0",UUID="GPU-a",health_watch="PCIE",health_error_code="DCGM_FR_OK"} 0
`)}}
	rounds[0].before = rounds[0].after
	got := map[string]verdict{}
	g := gpu{index: "0", uuid: "GPU-a"}
	for _, r := range append(compareAll("idle", []gpu{g}, rounds), expectHealth("idle", g, rounds[0])...) {
		got[r.gpu+" "+r.metric] = r.verdict
	}
	want := map[string]verdict{
		"0 GI 2 DCGM_FI_DEV_FB_USED": pass, "0 GI 3 DCGM_FI_DEV_FB_USED": fail, "0 GI 2 GPU_I_PROFILE": pass, "0 GI 3 GPU_I_PROFILE": pass,
		"0 GI 2 DCGM_FI_DEV_FB_FREE": missing, "0 GI 3 DCGM_FI_DEV_FB_FREE": missing, "0 GI 2 DCGM_FI_DEV_FB_RESERVED": missing, "0 GI 3 DCGM_FI_DEV_FB_RESERVED": missing,
		"0 DCGM_FI_DEV_FB_TOTAL": pass, "0 link 4 DCGM_FI_DEV_NVLINK_GET_STATE": pass, `0 link 4 nvidia_nvlink_errors_total{kind="receive"}`: pass, "0 DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION": missing,
		"0 DCGM_EXP_GPU_HEALTH_STATUS DRIVER": fail, "0 DCGM_EXP_GPU_HEALTH_STATUS PCIE": uncomparing, "0 DCGM_FI_DEV_UUID": missing,
	}
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestOnlyCSV: where the XML cannot be had, what the query says is compared, and the
// rest is named.
func TestOnlyCSV(t *testing.T) {
	s := script(t, map[string]string{"--query-gpu=*": csvAnswer})
	all, silent, err := s.ask(t.Context())
	if err != nil || len(silent) != 5 {
		t.Fatalf("error %v, silent %v", err, silent)
	}
	p := pageOf(t, `DCGM_FI_DEV_FB_TOTAL{UUID="GPU-a"} 143771
DCGM_FI_DEV_BAR1_TOTAL{UUID="GPU-a"} 262144
DCGM_FI_DEV_FB_USED{UUID="GPU-a",GPU_I_ID="2"} 22
DCGM_FI_DEV_NVLINK_GET_STATE{nvlink="4",gpu_uuid="GPU-a"} 1
DCGM_FI_PROF_SM_ACTIVE{UUID="GPU-a"} 0.5
`)
	r := &record{gpus: []gpu{{index: "0", uuid: "GPU-a"}}, silent: silent}
	r.results = compareAll("idle", r.gpus, []round{{before: p, after: p, smi: all}})
	got := strings.Join(r.notCompared(), "\n")
	for _, want := range []string{
		"nvidia-smi -q -x fails: nvidia-smi: exit status 6: Failed to process command line.",
		"nvidia-smi has no value: DCGM_FI_DEV_BAR1_TOTAL",
		"nvidia-smi has no counterpart: DCGM_FI_DEV_FB_USED by GPU_I_ID, DCGM_FI_DEV_NVLINK_GET_STATE, DCGM_FI_PROF_SM_ACTIVE",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it lacks %q:\n%s", want, got)
		}
	}
	var table bytes.Buffer
	if err := printReport(&table, r, false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(table.String(), "not compared, nvidia-smi -q -x fails") {
		t.Errorf("the table does not say what was not compared:\n%s", &table)
	}
}

// TestTraffic: a link's rate against the counter of nvidia-smi.
func TestTraffic(t *testing.T) {
	g := gpu{index: "0", uuid: "GPU-a"}
	start := time.Now()
	rounds := func(rate string) (out []round) {
		for i := range 3 {
			p := pageOf(t, `DCGM_FI_DEV_NVLINK_TX_THROUGHPUT_PER_LINK{nvlink="4",gpu_uuid="GPU-a"} `+rate+"\n")
			out = append(out, round{before: p, after: p, at: start.Add(time.Duration(i) * time.Second), smi: map[string]readout{
				"GPU-a": {"link:4:Data Tx": fmt.Sprintf("%d KiB", 19241022+i*1000000)},
			}})
		}
		return out
	}
	if got := expectTraffic("load", g, rounds("1010")); len(got) != 1 || got[0].verdict != pass || got[0].gpu != "0 link 4" {
		t.Errorf("1010 MB/s, of 1000: %+v", got)
	}
	if got := expectTraffic("load", g, rounds("10")); len(got) != 1 || got[0].verdict != fail {
		t.Errorf("10 MB/s, of 1000: %+v", got)
	}
}

// TestCaptures compares pages that say what nvidia-smi said on boards of others with it: its words and units are
// read, in CSV as in XML, and each value is in the range in which the exporter takes it for plausible.
func TestCaptures(t *testing.T) {
	models, compared := map[string]bool{}, map[string]bool{}
	for _, b := range captures.NVIDIA(t) {
		models[b.First("xml:product_name", "csv:name")] = true
		readings := readout(b.Readings)
		var lines strings.Builder
		values := 0
		for _, c := range checks {
			if c.of != board || c.how == text {
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
			said, _ := c.theirs(readings, part{uuid: "U"})
			if v, ok := numberOf(said); ok {
				fmt.Fprintf(&lines, "%s{UUID=\"U\"} %v\n", c.metric, v*cmp.Or(c.scale, 1))
				values++
			}
		}
		p := pageOf(t, lines.String())
		agree := 0
		for _, r := range compareAll("idle", []gpu{{index: "0", uuid: "U"}}, []round{{before: p, after: p, smi: map[string]readout{"U": readings}}}) {
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
