package main

import (
	"encoding/json"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"warpgauge/cmd/warpctl/doctor"
	"warpgauge/cmd/warpctl/top"
)

func TestTopOnce(t *testing.T) {
	o := execute(t, nil, simulated("top", "--url=none")...) // a buffer is no terminal
	o.want(t, 0, "GPU  MODEL", "up     ", "(simulated)\n")
	if strings.Count(o.out, "H100") != 8 || strings.Contains(o.out, "\x1b") {
		t.Errorf("table:\n%q", o.out)
	}
	execute(t, nil, simulated("top", "--once")...).want(t, 0, "--enable-dcgm is set, so the devices are read here", "H100")
	var got top.Report
	if err := json.Unmarshal([]byte(execute(t, nil, simulated("top", "--url=none", "--output=json", "--fake-profile=dgx-a100-mig")...).out), &got); err != nil {
		t.Fatal(err)
	}
	instances := 0
	for _, d := range got.Devices {
		instance := strings.Contains(d.GPU, "/")
		if d.State != "up" || !d.Simulated || instance && d.MemoryUsed == nil || !instance && d.Temperature == nil {
			t.Errorf("device %+v", d)
		}
		if instance {
			instances++
		}
	}
	if len(got.Nodes) != 1 || instances == 0 {
		t.Errorf("%d nodes, %d instances", len(got.Nodes), instances)
	}
	if csv := execute(t, nil, simulated("top", "--url=none", "--output=csv", "--fake-profile=mi300x")...); strings.Count(csv.out, "\n") != 9 || !strings.HasPrefix(csv.out, "node,gpu,id,model,simulated,state") {
		t.Errorf("CSV:\n%s", csv.out)
	}

	s := httptest.NewServer(answering())
	defer s.Close()
	file := tempFile(t, "urls", "# all\n"+s.URL+" # the first\n\n"+s.URL+"\n127.0.0.1:1\n")
	execute(t, nil, "top", "--once", "--urls-file="+file, "--url="+s.URL).want(t, 1, "http://127.0.0.1:1 does not answer: no exporter answers")
	execute(t, nil, "top", "--output=csv", "--url="+s.URL, "--url=127.0.0.1:1").want(t, 1, "node,gpu,id", "warpgauge: no exporter answers at http://127.0.0.1:1: connection refused\n")

	for _, c := range []struct{ args, text string }{
		{"--interval=1ms", "at least 250ms"},
		{"--output=xml", "table, json or csv"},
		{"--urls-file=" + filepath.Join(t.TempDir(), "absent"), "--urls-file: "},
		{"--urls-file=" + tempFile(t, "empty", "# none\n"), "has no URL"},
		{"--url=ftp://x", "http://HOST:PORT"},
		{"x", `unexpected argument "x"`},
	} {
		execute(t, nil, "top", "--once", c.args).want(t, 1, c.text)
	}
}

func TestDoctor(t *testing.T) {
	o := execute(t, nil, simulated("doctor", "--output=json")...)
	var got doctor.Result
	if err := json.Unmarshal([]byte(o.out), &got); err != nil {
		t.Fatalf("%v\n%s%s", err, o.out, o.err)
	}
	found := false
	for _, f := range got.Findings {
		found = found || f.Check == "devices" && strings.Contains(f.Finding, "8 GPUs (simulated), all devices are up")
	}
	if !found || got.Wrong() != (o.code == 1) {
		t.Errorf("code %d, findings %+v", o.code, got.Findings)
	}
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	o = execute(t, nil, simulated("doctor", "--bundle="+path)...)
	o.want(t, o.code, "wrote "+path)
	if o := execute(t, nil, simulated("doctor", "--bundle=-")...); !strings.HasPrefix(o.out, "\x1f\x8b") {
		t.Errorf("the bundle on standard output begins with %.20q", o.out)
	}
	execute(t, nil, "doctor", "--recordings").want(t, 1, "--no-redact")
	execute(t, nil, "doctor", "--url=none", "--bundle="+filepath.Join(path, "x"), "--enable-dcgm=false", "--enable-nvml=false", "--enable-rocm=false").want(t, 1, "write the bundle")
}
