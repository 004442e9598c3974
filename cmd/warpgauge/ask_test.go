package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
)

// answering returns an exporter with a GPU, two users of it, its fields, and a page.
func answering() http.Handler {
	var mux http.ServeMux
	mux.HandleFunc("/api/v1/devices", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(apiv1.Devices{ // the client reports errors
			Collectors: []apiv1.Collector{{Name: "nvml", Up: true}, {Name: "rocm", Reason: "no AMD GPU"}},
			Devices: []apiv1.Device{
				{ID: "GPU-1", Kind: "gpu", Collector: "nvml", State: "lost", Status: apiv1.Status{Word: "failed", Why: "fell off the bus"}, GPU: "0", UUID: "GPU-1", Model: "A\x1b[2Jmodel", PCIBusID: "00000000:01:00.0",
					Users: []apiv1.User{{Namespace: "ml", Pod: "train", Container: "main"}, {Job: "4711"}}},
				{ID: "GPU-1/link0", Kind: "link", Collector: "nvml", State: "up", Status: apiv1.Status{Word: "up"}, GPU: "0", UUID: "GPU-1", Parent: "GPU-1"},
			},
		})
	})
	mux.HandleFunc("/api/v1/fields", func(w http.ResponseWriter, r *http.Request) {
		out, value := apiv1.Fields{}, 41.0
		for _, id := range r.URL.Query()["device"] {
			d := apiv1.DeviceFields{ID: id}
			if id == "GPU-1" {
				d.Fields = []apiv1.Field{
					{Name: "A", Type: "gauge", Unit: "W", Collector: "nvml", Labels: map[string]string{"x": "1"}, Value: &value},
					{Name: "B", Type: "gauge", Collector: "nvml", Absent: &apiv1.Absence{Reason: "no_symbol", Detail: "driver 470 lacks it"}},
					{Name: "L", Type: "label", Collector: "nvml", Text: "550.54"},
				}
			}
			out.Devices = append(out.Devices, d)
		}
		_ = json.NewEncoder(w).Encode(out)
	})
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("page " + r.Header.Get("Accept") + "\nwarpgauge_mapping_up{mapping=\"pod_resources\"} 0\n")) // see above
	})
	return &mux
}

// simulatedEnvironment returns variables for a fully simulated node, which do not select a source.
func simulatedEnvironment(address string) environment {
	return environment{
		"DCGM_EXPORTER_LISTEN": address, "WARPGAUGE_ENABLE_FAKE": "true",
		"WARPGAUGE_ENABLE_DCGM": "false", "WARPGAUGE_ENABLE_NVML": "false", "WARPGAUGE_ENABLE_ROCM": "false",
	}
}

func TestAskedExporter(t *testing.T) {
	s := httptest.NewServer(answering())
	defer s.Close()
	here := simulatedEnvironment(strings.TrimPrefix(s.URL, "http://"))
	asked := "warpgauge: asked the exporter at " + s.URL + "\n"
	for _, c := range []struct {
		env  environment
		args []string
	}{{here, nil}, {nil, []string{"--url=" + s.URL}}, {simulatedEnvironment(":1"), []string{"--url", s.URL + "/metrics"}}, {here, []string{"--log-level=info"}}} {
		devices := execute(t, c.env, append([]string{"devices"}, c.args...)...)
		devices.Want(t, 0, "nvml       failed  gpu", "A?[2Jmodel", "fell off the bus  pod ml/train, container main\n", "job 4711\n", "1 device more: links", "rocm is not in use: no AMD GPU", `doctor says why: warpgauge_mapping_up{mapping="pod_resources"} 0`)
		page := execute(t, c.env, append([]string{"once"}, c.args...)...)
		page.Want(t, 0, "page text/plain; version=0.0.4")
		if devices.Err != asked || page.Err != asked+"warpgauge: GPU 0 (GPU-1) is failed: fell off the bus\n" {
			t.Errorf("%q: standard error %q and %q, want %q", c.args, devices.Err, page.Err, asked)
		}
	}
	var got struct {
		Devices []struct {
			UsedBy []string `json:"used_by"`
		}
	}
	if err := json.Unmarshal([]byte(execute(t, here, "devices", "--output=json").Out), &got); err != nil || len(got.Devices) != 2 || len(got.Devices[0].UsedBy) != 2 {
		t.Errorf("JSON: %+v, error %v", got, err)
	}

	// With settings that an exporter cannot know, or --url=none, the command reads the devices itself.
	for args, why := range map[string]string{"--fake-devices=2": "warpgauge: --fake-devices is set, so the devices are read here\n", "--url=none": ""} {
		o := execute(t, here, "devices", args)
		o.Want(t, 0, "fake       up     gpu")
		testkit.Equal(t, "standard error with "+args, why, o.Err)
	}
	execute(t, here, "once", "--samples=1").Want(t, 0, "(simulated)")

	want := `gpu 0, GPU-1, by nvml
FIELD     VALUE   UNIT  WHY NOT
A{x="1"}  41      W     
B         -       -     no_symbol: driver 470 lacks it
L         550.54  -     
`
	for _, which := range []string{"0", "GPU-1", "01:00.0", "0000:01:00.0"} {
		if o := execute(t, nil, "devices", "--url="+s.URL, which); o.Out != want || o.Code != 0 {
			t.Errorf("devices %s: exit code %d\n%s%s", which, o.Code, o.Out, o.Err)
		}
	}
	// The exporter's answer is final: the command does not open the devices as well.
	if o := execute(t, here, "devices", "5"); o.Code != 1 || !strings.Contains(o.Err, `no device is "5"`) || strings.Contains(o.Err, "read here") {
		t.Errorf("devices 5: exit code %d, standard error %q", o.Code, o.Err)
	}
}

func TestNoExporterAnswers(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	why := "warpgauge: no exporter answers at " + closed.URL + ": connection refused"
	here := simulatedEnvironment(strings.TrimPrefix(closed.URL, "http://"))
	if o := execute(t, here, "devices"); o.Code != 0 || o.Err != why+", so the devices are read here\n" || strings.Count(o.Out, " gpu ") != 8 {
		t.Errorf("devices: exit code %d, standard error %q", o.Code, o.Err)
	}
	execute(t, here, "once").Want(t, 0, why, "\nDCGM_FI_DEV_GPU_TEMP{")
	for _, command := range []string{"devices", "once"} { // a named exporter is not replaced
		if o := execute(t, here, command, "--url="+closed.URL); o.Code != 1 || o.Err != why+"\n" || o.Out != "" {
			t.Errorf("%s --url: exit code %d, output %q, standard error %q", command, o.Code, o.Out, o.Err)
		}
	}

	// Another program at the port, or an exporter without the API.
	older := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("warpgauge_build_info{a=\"\x1b[2J\"} 1\n")) // the client reports errors
	}))
	defer older.Close()
	execute(t, simulatedEnvironment(strings.TrimPrefix(older.URL, "http://")), "once").Want(t, 0, "it has no JSON API", ", so the devices are read here\n", "\nDCGM_FI_DEV_GPU_TEMP{")
	execute(t, nil, "devices", "--url="+older.URL).Want(t, 1, "it has no JSON API")
	execute(t, nil, "once", "--url="+older.URL).Want(t, 0, "warpgauge_build_info{a=\"?[2J\"} 1\n")
	execute(t, nil, "devices", "--url=ftp://x").Want(t, 1, "write http://HOST:PORT")
	execute(t, nil, "once", "--samples=2", "--url="+older.URL).Want(t, 1, "--url asks an exporter: leave one out")
}
