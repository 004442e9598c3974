package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warpgauge/cmd/warpctl/doctor"
	"warpgauge/cmd/warpctl/top"
	"warpgauge/extensions/accounts/report"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
)

type outcome = testkit.Outcome

var tempFile = testkit.TempFile

// execute runs the program in this process.
func execute(t *testing.T, args ...string) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), append([]string{"warpctl"}, args...), &out, &errs, nil, "http://127.0.0.1:1")
	return outcome{Code: code, Out: out.String(), Err: errs.String()}
}

// answering returns a handler that acts as an exporter with two GPUs and an instance.
func answering(t *testing.T) http.Handler {
	value := 41.0
	fields := []apiv1.Field{{Name: "DCGM_FI_DEV_GPU_TEMP", Role: "temperature", Unit: "celsius", Value: &value}}
	var mux http.ServeMux
	for path, answer := range map[string]any{
		"devices": apiv1.Devices{Hostname: "node-1", Version: "v1", Simulated: true, Collectors: []apiv1.Collector{{Name: "fake", Up: true}}, Devices: []apiv1.Device{
			{ID: "GPU-1", Kind: "gpu", GPU: "0", Model: "A\x1b[2Jmodel", State: "up", Status: apiv1.Status{Word: "up"}, Collector: "fake", Simulated: true},
			{ID: "GPU-2", Kind: "gpu", GPU: "1", Model: "Amodel", State: "lost", Status: apiv1.Status{Word: "failed", Why: "fell off the bus"}, Collector: "fake", Simulated: true},
		}},
		"fields": apiv1.Fields{Devices: []apiv1.DeviceFields{{ID: "GPU-1", Fields: fields}}},
		"health": apiv1.Health{State: "failed", Ready: true}, "list": apiv1.List{Source: "built in"}, "events": apiv1.Events{},
	} {
		mux.HandleFunc("/api/v1/"+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			err := json.NewEncoder(w).Encode(answer)
			testkit.ErrorIf(t, err != nil, "%v", err)
		})
	}
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("warpgauge_build_info 1\n")) // the client reports errors
	})
	return &mux
}

func TestTopOnce(t *testing.T) {
	s := httptest.NewServer(answering(t))
	defer s.Close()
	o := execute(t, "top", "--url="+s.URL) // a buffer is not a terminal
	o.Want(t, 0, "GPU  MODEL", "up     ", "failed", "fell off the bus")
	testkit.Lacks(t, "table", o.Out, "\x1b")
	var got top.Report
	testkit.Must(t, json.Unmarshal([]byte(execute(t, "top", "--url="+s.URL, "--output=json").Out), &got))
	testkit.ErrorIf(t, len(got.Nodes) != 1 || got.Nodes[0].Node != "node-1" || len(got.Devices) != 2 || got.Devices[0].Temperature == nil, "report %+v", got)
	file := tempFile(t, "urls", "# all\n"+s.URL+" # the first\n\n"+s.URL+"\n127.0.0.1:1\n")
	o = execute(t, "top", "--once", "--urls-file="+file, "--url="+s.URL)
	o.Want(t, 1, "http://127.0.0.1:1 does not answer: no exporter answers")
	testkit.Times(t, 1, o.Out, "Amodel")
	execute(t, "top", "--output=json", "--url="+s.URL, "--url=127.0.0.1:1").Want(t, 1, `"temperature_celsius"`, `"error": "no exporter answers at http://127.0.0.1:1: connection refused"`)

	// Nothing answers on this machine.
	execute(t, "top").Want(t, 1, "no exporter answers at http://127.0.0.1:1", "start warpgauge", "--url", "warpgauge devices")
	for _, c := range []struct{ args, text string }{
		{"--interval=1ms", "at least 250ms"},
		{"--output=xml", "table or json"},
		{"--urls-file=" + filepath.Join(t.TempDir(), "absent"), "--urls-file: "},
		{"--urls-file=" + tempFile(t, "empty", "# none\n"), "has no URL"},
		{"--url=ftp://x", "http://HOST:PORT"},
		{"x", `unexpected argument "x"; see warpctl top --help`},
		{"--enable-fake", "unknown flag --enable-fake"},
	} {
		execute(t, "top", "--once", c.args).Want(t, 1, c.text)
	}
}

// accounting starts an exporter that keeps these accounts, or none.
func accounting(t *testing.T, known ...report.Report) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, _ := strings.CutPrefix(r.URL.Path, "/api/v1/owners")
		for i := range known {
			if id == "" || strings.HasPrefix("/"+known[i].ID, id) {
				_ = json.NewEncoder(w).Encode(known[i]) // the client reports errors
				return
			}
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"title": "Not Found"}`))
	}))
	t.Cleanup(s.Close)
	return "--url=" + s.URL
}

func TestJob(t *testing.T) {
	came := time.Now().Add(-time.Hour)
	owner := func(id, node string, age time.Duration) report.Report {
		kind, rest, _ := strings.Cut(id, ":")
		return report.Report{ID: id, Owner: report.Owner{Kind: kind, Job: rest}, Nodes: []string{node}, Came: came.Add(-age), Boards: []report.Board{{Node: node, GPU: "0", Came: came, Use: report.Use{Energy: 7200}}}}
	}
	a := accounting(t, owner("job:1234", "a", 0), owner("pod:ns:p:new", "a", 0))
	b, c, off := accounting(t, owner("job:1234", "b", 0), owner("pod:ns:p:old", "b", time.Minute)), accounting(t, owner("job:9", "c", 0)), accounting(t)
	o := execute(t, "job", a, b, c, "1234")
	o.Want(t, 0, "job 1234 on 2 nodes: 2 GPUs", "energy    4 Wh", "\n\nNo reading says what the GPUs did.\n")
	testkit.Equal(t, "standard error", "", o.Err)
	var got report.Report
	testkit.Must(t, json.Unmarshal([]byte(execute(t, "job", a, b, "--output=json", "ns/p").Out), &got))
	testkit.Equal(t, "the newest pod of the name", []string{"pod:ns:p:new", "a"}, append([]string{got.ID}, got.Nodes...))
	o = execute(t, "job", a, off, "--url=127.0.0.1:1", "job:1234")
	o.Want(t, 1, "job 1234 on a: 1 GPU", "warpctl: exporter at "+off[6:]+": it keeps no accounts: start it with --accounts\n", "\nno exporter answers at http://127.0.0.1:1: connection refused\n")
	execute(t, "job", b, "--output=json", "9").Want(t, 1, "no exporter that answers knows job:9")
	execute(t, "job", accounting(t, owner("job:12:3\x1b[2J", "a", 0)), "job:12").Want(t, 1, `it reports "job:12:3\x1b[2J" instead of "job:12"`)
	execute(t, "job", a).Want(t, 1, "job takes one ID")
}

func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(answering(t))
	defer s.Close()
	ca := tempFile(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	execute(t, "top", "--url="+s.URL).Want(t, 1, "not trusted")
	execute(t, "top", "--url="+s.URL, "--insecure").Want(t, 0, "Amodel")
	execute(t, "top", "--url="+s.URL, "--ca-file="+ca).Want(t, 0, "Amodel")
	execute(t, "top", "--url="+s.URL, "--ca-file="+tempFile(t, "x", "x")).Want(t, 1, "no certificate in PEM")
}

func TestDoctor(t *testing.T) {
	s := httptest.NewServer(answering(t))
	defer s.Close()
	o := execute(t, "doctor", "--url="+s.URL, "--output=json")
	var got doctor.Result
	testkit.Must(t, json.Unmarshal([]byte(o.Out), &got))
	found := false
	for _, f := range got.Findings {
		found = found || f.Check == "devices" && strings.Contains(f.Finding, "failed: GPU 1: fell off the bus")
	}
	testkit.ErrorIf(t, !found || !got.Wrong() || o.Code != 1, "code %d, findings %+v", o.Code, got.Findings)
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	execute(t, "doctor", "--url="+s.URL, "--bundle="+path).Want(t, 1, "wrote "+path, "PROBLEM  devices")
	if o := execute(t, "doctor", "--url="+s.URL, "--bundle=-"); !strings.HasPrefix(o.Out, "\x1f\x8b") {
		t.Errorf("the bundle on standard output begins with %.20q", o.Out)
	}
	execute(t, "doctor", "--url="+s.URL, "--bundle="+filepath.Join(path, "x")).Want(t, 1, "write the bundle")
	execute(t, "doctor", "--url="+s.URL, "--no-redact", "--bundle="+path).Want(t, 1, "wrote "+path)
	execute(t, "doctor", "--timeout=0s").Want(t, 1, "write a duration above 0")
	execute(t, "doctor").Want(t, 1, "no exporter answers at http://127.0.0.1:1")
}

func TestRoot(t *testing.T) {
	execute(t).Want(t, 0, "Usage:", "  top ", "  doctor ", "  compare ", "  completion ")
	execute(t, "dokter").Want(t, 1, "unknown command \"dokter\" (did you mean doctor?); see warpctl --help")
	execute(t, "version").Want(t, 0, "warpctl ", "revision ", "go1.")
	execute(t, "completion", "bash").Want(t, 0, "--generate-shell-completion")
	execute(t, "man").Want(t, 0, ".TH WARPCTL 1", ".SS compare\n", "[flags] OLD NEW", `  \-\-urls\-file `, ".SS completion")
	for _, command := range []string{"top", "job", "doctor", "compare"} {
		execute(t, command, "--help").WantHelp(t, "warpctl "+command+" [flags]", "--ca-file")
	}
}
