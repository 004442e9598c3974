package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/config"
)

// oldPage is a page of dcgm-exporter 4.8.2 with its label order and a DCGM blank.
const oldPage = `# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",pci_bus_id="00000000:3B:00.0",device="nvidia0",modelName="A, \"b\" {c}",Hostname="n1"} 41
DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-b",pci_bus_id="00000000:3C:00.0",device="nvidia1",modelName="A",Hostname="n1"} 50
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-a",Hostname="n1"} 1980
# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="1",UUID="GPU-b",GPU_I_ID="7",Hostname="n1"} 0.250000
# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-a",Hostname="n1"} 5e+06
# TYPE DCGM_FI_DEV_VGPU_LICENSE_STATUS gauge
DCGM_FI_DEV_VGPU_LICENSE_STATUS{gpu="0",UUID="GPU-a",Hostname="n1"} 9223372036854775794
go_goroutines 7
`

// newPage is the same node seconds later, from an exporter with the names of DCGM 4.7.
const newPage = `# TYPE DCGM_FI_DEV_GPU_TEMP_CELSIUS gauge
DCGM_FI_DEV_GPU_TEMP_CELSIUS{hostname="n1",UUID="GPU-a",gpu="0"} 42
DCGM_FI_DEV_GPU_TEMP_CELSIUS{hostname="n1",UUID="GPU-b",gpu="1"} 80
# TYPE DCGM_FI_DEV_SM_CLOCK_HERTZ gauge
DCGM_FI_DEV_SM_CLOCK_HERTZ{hostname="n1",UUID="GPU-a",gpu="0"} 1.98e+09
# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge
DCGM_FI_PROF_GR_ENGINE_ACTIVE{hostname="n1",UUID="GPU-b",gpu="1",GPU_I_ID="8"} 0.25
# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION gauge
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{hostname="n1",UUID="GPU-a",gpu="0"} 5e+06
# TYPE DCGM_FI_DEV_FB_FREE gauge
DCGM_FI_DEV_FB_FREE{hostname="n1",UUID="GPU-a",gpu="0"} 9
`

// compared parses the output in JSON.
func compared(t *testing.T, text string) (got comparison) {
	t.Helper()
	testkit.Must(t, json.Unmarshal([]byte(text), &got))
	return got
}

func TestCompareFindings(t *testing.T) {
	o := execute(t, "compare", "--output=json", tempFile(t, "page", oldPage), tempFile(t, "page", newPage))
	testkit.FatalIf(t, o.Code != 1 || o.Err != "", "exit code %d, error %q", o.Code, o.Err)
	var got []string
	for _, f := range compared(t, o.Out).Findings {
		testkit.ErrorIf(t, f.Meaning == "", "%+v has no meaning", f)
		got = append(got, strings.Join([]string{string(f.Kind), f.Old, f.New, f.Values}, " | "))
	}
	want := []string{
		`family missing | DCGM_FI_DEV_VGPU_LICENSE_STATUS |  | `,
		`series missing | DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-b",GPU_I_ID="7"} |  | `,
		`value differs | DCGM_FI_DEV_GPU_TEMP{UUID="GPU-b"} | DCGM_FI_DEV_GPU_TEMP_CELSIUS{UUID="GPU-b"} | 50 -> 80`,
		`type differs | DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION | DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION | counter -> gauge`,
		`label missing | device |  | `,
		`label missing | modelName |  | `,
		`label missing | pci_bus_id |  | `,
		`family renamed | DCGM_FI_DEV_GPU_TEMP | DCGM_FI_DEV_GPU_TEMP_CELSIUS | `,
		`family renamed | DCGM_FI_DEV_SM_CLOCK | DCGM_FI_DEV_SM_CLOCK_HERTZ | `,
		`label renamed | Hostname | hostname | `,
	}
	testkit.Equal(t, "findings", want, got)
	for kind, part := range map[string]string{"family missing": "blank of DCGM", "family renamed": "new value = old value × 1e+06", "label renamed": "by()"} {
		testkit.Has(t, "findings with one of kind "+kind, o.Out, part)
	}
}

// TestCompareEqualPages: new names and additional families are not losses.
func TestCompareEqualPages(t *testing.T) {
	const old = `# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{UUID="GPU-a",Hostname="n1",pod="p"} 1980
DCGM_FI_DEV_SM_CLOCK{UUID="GPU-a",Hostname="n1",pod="q"} 1000
# TYPE DCGM_FI_DEV_GPU_UTIL histogram
DCGM_FI_DEV_GPU_UTIL_bucket{UUID="GPU-a",Hostname="n1",pod="p",le="+Inf"} 3
DCGM_FI_DEV_GPU_UTIL_sum{UUID="GPU-a",Hostname="n1",pod="p"} 3
DCGM_FI_DEV_GPU_UTIL_count{UUID="GPU-a",Hostname="n1",pod="p"} 3
`
	const latest = `# TYPE DCGM_FI_DEV_SM_CLOCK_HERTZ gauge
DCGM_FI_DEV_SM_CLOCK_HERTZ{uuid="GPU-a",hostname="n1",pod="q"} 1.01e9
DCGM_FI_DEV_SM_CLOCK_HERTZ{uuid="GPU-a",hostname="n1",pod="p"} 1.97e9
# TYPE DCGM_FI_DEV_GPU_UTIL histogram
DCGM_FI_DEV_GPU_UTIL_bucket{uuid="GPU-a",hostname="n1",pod="p",le="+Inf"} 99
DCGM_FI_DEV_GPU_UTIL_sum{uuid="GPU-a",hostname="n1",pod="p"} 9
DCGM_FI_DEV_GPU_UTIL_count{uuid="GPU-a",hostname="n1",pod="p"} 99
`
	o := execute(t, "compare", "--output=json", tempFile(t, "page", old), tempFile(t, "page", latest))
	if got := compared(t, o.Out); o.Code != 0 || got.Series != 3 || got.Same != 3 || len(got.Findings) != 3 {
		t.Errorf("exit code %d, %d of %d series the same, findings %v; want 0, 3 of 3 and one family, two labels renamed", o.Code, got.Same, got.Series, got.Findings)
	}
	ratio := "# TYPE DCGM_FI_DEV_GPU_UTIL_RATIO gauge\nDCGM_FI_DEV_GPU_UTIL_RATIO{gpu=\"0\",UUID=\"GPU-a\"} "
	execute(t, "compare", tempFile(t, "page", ratio+"57\n"), tempFile(t, "page", ratio+"0.57\n")).Want(t, 1, "have percent under this name")
	idle := "# HELP DCGM_FI_DEV_GPU_UTIL_RATIO GPU utilization (in %).\n" + ratio + "0\n"
	execute(t, "compare", tempFile(t, "page", idle), tempFile(t, "page", ratio+"0\n")).Want(t, 1, "have percent under this name")
	execute(t, "compare", "--tolerance=0.001", tempFile(t, "page", old), tempFile(t, "page", latest)).Want(t, 1, "1980 -> 1970")
	testkit.Equal(t, "a page and itself", outcome{Out: "the same: 3 of 3 series\n"}, execute(t, "compare", tempFile(t, "page", old), tempFile(t, "page", old)))
}

// TestCompareBothGenerations: a page with both generations of names contains every page of one
// generation, and lists its additions. With one generation, families count as renamed.
func TestCompareBothGenerations(t *testing.T) {
	page := func(labels string, series ...string) string {
		text := ""
		for _, s := range series {
			name, value, _ := strings.Cut(s, " ")
			text += fmt.Sprintf("# TYPE %s gauge\n%[1]s{UUID=\"GPU-a\",%s} %s\n", name, labels, value)
		}
		return tempFile(t, "page", text)
	}
	const oldTemp, oldClock, oldDriver = "DCGM_FI_DEV_GPU_TEMP 40", "DCGM_FI_DEV_SM_CLOCK 1980", `DCGM_FI_DRIVER_VERSION="570"`
	const newTemp, newClock, newDriver = "DCGM_FI_DEV_GPU_TEMP_CELSIUS 40", "DCGM_FI_DEV_SM_CLOCK_HERTZ 1.98e9", `DCGM_FI_SYSTEM_DRIVER_VERSION="570"`
	old, latest := page(oldDriver, oldTemp, oldClock), page(newDriver, newTemp, newClock)
	both := page(oldDriver+","+newDriver, oldTemp, newTemp, oldClock, newClock)
	f := func(from, to string, want ...string) {
		t.Helper()
		o := execute(t, "compare", "--output=json", from, to)
		var got []string
		for _, f := range compared(t, o.Out).Findings {
			got = append(got, strings.TrimSpace(string(f.Kind)+" "+f.Old+" "+f.New))
		}
		o.Want(t, 0)
		testkit.Equal(t, "findings", want, got)
	}
	f(old, both)
	f(latest, both)
	renamed := []string{"family renamed DCGM_FI_DEV_GPU_TEMP DCGM_FI_DEV_GPU_TEMP_CELSIUS", "family renamed DCGM_FI_DEV_SM_CLOCK DCGM_FI_DEV_SM_CLOCK_HERTZ",
		"label renamed DCGM_FI_DRIVER_VERSION DCGM_FI_SYSTEM_DRIVER_VERSION"}
	f(old, latest, renamed...)
	f(both, latest, renamed...)
}

func TestComparePagesThatCannotBeRead(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
		case "/site":
			_, _ = w.Write([]byte("<!doctype html>"))
			return
		case "/text":
			_, _ = w.Write([]byte("warpgauge unknown: /metrics\n"))
			return
		default:
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(oldPage))
	}))
	defer server.Close()
	page := tempFile(t, "page", oldPage)
	execute(t, "compare", page, server.URL+"/metrics").Want(t, 0)
	for _, address := range []string{"http://u:secret@127.0.0.1:1/metrics", "http://u:secret%zz@127.0.0.1:1/metrics"} {
		o := execute(t, "compare", address, page)
		testkit.ErrorIf(t, o.Code != 2 || strings.Contains(o.Err, "secret"), "%s: exit code %d, standard error %q, want 2 and no password", address, o.Code, o.Err)
	}
	secure := httptest.NewTLSServer(server.Config.Handler)
	defer secure.Close()
	execute(t, "compare", "--insecure", page, secure.URL+"/metrics").Want(t, 0)
	for want, args := range map[string][]string{
		"404":                           {page, server.URL + "/elsewhere"},
		"no such file":                  {page, page + "x"},
		"no metrics":                    {tempFile(t, "page", "\n"), page},
		"text format parsing":           {page, tempFile(t, "page", "<html>\n")},
		"two pages":                     {page},
		"--tolerance is 2":              {"--tolerance=2", page, page},
		"unknown flag --tol":            {"--tol=1", page, page},
		"web site":                      {page, server.URL + "/site"},
		"http://HOST:9400/metrics":      {page, server.URL + "/text"},
		"http://localhost:9400/metrics": {page, "localhost:9400"},
		`--tolerance is "x"`:            {"--tolerance=x", page, page},
		"--output is":                   {"--output=xml", page, page},
	} {
		o := execute(t, append([]string{"compare"}, args...)...)
		testkit.ErrorIf(t, o.Code != 2 || o.Out != "" || !strings.Contains(o.Err, want), "%q: exit code %d, output %q, error %q; want 2 and %q", args, o.Code, o.Out, o.Err, want)
	}
	// A page without GPUs is no basis for a comparison.
	execute(t, "compare", tempFile(t, "page", "go_goroutines 7\n"), page).Want(t, 1)
}

func FuzzComparePages(f *testing.F) {
	f.Add(oldPage, newPage)
	f.Add("DCGM_FI_DEV_GPU_TEMP 1\ndcgm_fi_x{UUID=\"\\\"\"} NaN\n", "DCGM_FI_DEV_GPU_TEMP_CELSIUS +Inf\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		old, err := config.ReadPage(t.Context(), "-", strings.NewReader(a), nil)
		if err != nil {
			return
		}
		latest, err := config.ReadPage(t.Context(), "-", strings.NewReader(b), nil)
		if err != nil {
			return
		}
		c := comparePages(old, latest, 0.1)
		testkit.ErrorIf(t, c.Same > c.Series, "%d of %d series are the same", c.Same, c.Series)
		c = comparePages(old, old, 0)
		testkit.ErrorIf(t, len(c.Findings) > 0 || c.Same != c.Series, "a page and itself: %d of %d the same, %v", c.Same, c.Series, c.Findings)
	})
}
