package newvendor_test

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"warpgauge/extensions/health"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/programtest"
	"warpgauge/pkg/field"
	kubelet "warpgauge/pkg/kube/kubetest"
)

var must = testkit.Must

// rows lists the lines of the two tables to which a vendor adds a row, and the toys' rows, which follow them.
var rows = []struct{ file, after, row string }{
	{"pkg/field/vendor.go", "vendors = []*Vendor{", "VendorToy, "},
	{"cmd/warpgauge/collectors.go", "import (\n", "\t\"os\"\n\t\"warpgauge/collectors/toy\"\n"},
	{"cmd/warpgauge/collectors.go", "out := []exporter.Vendor{\n", `		{
			Name: toy.Name, Setting: config.Auto, Maker: field.VendorToy, Supplies: toy.Supplies,
			Open: func() collector.Collector { return toy.New(toy.Directory(os.Getenv("TOY_GPUS"))) },
		},
`},
}

// overlay returns the file for go's flag -overlay that adds the toys to the tree: the folders below testdata, and the rows.
func overlay(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	must(t, err)
	replace := map[string]string{}
	must(t, filepath.WalkDir("testdata", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel("testdata", path)
		if err != nil {
			return err
		}
		replace[filepath.Join(root, name)], err = filepath.Abs(path)
		return err
	}))
	for _, r := range rows {
		file := filepath.Join(root, r.file)
		from := file
		if changed, ok := replace[file]; ok {
			from = changed
		}
		text := testkit.Get(os.ReadFile(from))(t)
		testkit.Has(t, r.file, string(text), r.after)
		to := filepath.Join(t.TempDir(), filepath.Base(file))
		must(t, os.WriteFile(to, []byte(strings.Replace(string(text), r.after, r.after+r.row, 1)), 0o600))
		replace[file] = to
	}
	text := testkit.Get(json.Marshal(map[string]any{"Replace": replace}))(t)
	file := filepath.Join(t.TempDir(), "overlay.json")
	must(t, os.WriteFile(file, text, 0o600))
	return file
}

// goTool runs go without cgo, which is faster; the test uses no vendor's library.
func goTool(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), programtest.Find(t, "go"), args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	testkit.FatalIf(t, err != nil, "go %s: %v\n%s", strings.Join(args, " "), err, out)
}

// TestToys checks that a vendor added by a folder, two rows and its descriptors is served like any other: on the
// page, for owners, devices, reasons, verdicts and readiness, and without the other vendors.
func TestToys(t *testing.T) {
	t.Parallel()
	files := overlay(t)
	exe := filepath.Join(t.TempDir(), "warpgauge")
	goTool(t, "build", "-buildvcs=false", "-overlay="+files, "-o", exe, "./cmd/warpgauge")

	gpus := t.TempDir()
	ids := []string{"TOY-00000000-1111-2222-3333-000000000000", "TOY-00000000-1111-2222-3333-000000000001"}
	for i, id := range ids {
		must(t, os.WriteFile(filepath.Join(gpus, id), fmt.Appendf(nil, "%d\n", 40+i), 0o600))
	}
	list := filepath.Join(t.TempDir(), "counters.csv")
	must(t, os.WriteFile(list, []byte("DCGM_FI_DEV_GPU_TEMP, gauge, t\ntoy_gpu_wheel_speed_rpm, gauge, w\nDCGM_FI_DEV_XID_ERRORS, gauge, x\namd_gpu_voltage_volts, gauge, v\n"), 0o600))
	k := kubelet.Start(t)
	k.Set(
		kubelet.Pod("ml", "train-0", kubelet.Container("main", kubelet.Devices("toy.example/gpu", ids[1]))),
		kubelet.Pod("ml", "network", kubelet.Container("main", kubelet.Devices("toy.example/nic", ids[0]))))
	p := programtest.Start(t, exe, []string{
		"--address=127.0.0.1:0", "--collectors=" + list, "--enable-only=toy", "--require=toy", "--web-page=full",
		"-k", "--pod-resources-kubelet-socket=" + k.Socket(), "--process-values=false",
	}, programtest.Options{Env: append(os.Environ(), "TOY_GPUS="+gpus)})
	url := p.AwaitReady(t, "/readyz") // needs --require=toy

	p.Await(t, "the page", func() error {
		page := get(t, url+"/metrics")
		for _, want := range []string{
			fmt.Sprintf("\nDCGM_FI_DEV_GPU_TEMP{gpu=%q,UUID=%q,", "0", ids[0]),
			fmt.Sprintf("\ntoy_gpu_wheel_speed_rpm{gpu=%q,UUID=%q,", "1", ids[1]),
			`container="main",namespace="ml",pod="train-0"`,
		} {
			if !strings.Contains(page, want) {
				return fmt.Errorf("no %s in %s", want, page)
			}
		}
		if strings.Contains(page, `pod="network"`) {
			return fmt.Errorf("a network adapter has a GPU: %s", page)
		}
		return nil
	})

	var fields apiv1.Fields
	decode(t, url+"/api/v1/fields?device="+ids[0], &fields)
	for _, f := range fields.Devices[0].Fields {
		switch want := map[string]string{"DCGM_FI_DEV_XID_ERRORS": "only NVIDIA GPUs have it", "amd_gpu_voltage_volts": "only AMD GPUs have it"}[f.Name]; {
		case want == "" && (f.Value == nil || f.Absent != nil), want != "" && (f.Absent == nil || f.Absent.Detail != want):
			t.Errorf("%s is %v, absent %+v, want %q", f.Name, f.Value, f.Absent, want)
		}
	}

	var verdicts apiv1.Health
	p.Await(t, "verdicts", func() error {
		verdicts = apiv1.Health{}
		if decode(t, url+"/api/v1/health", &verdicts); len(verdicts.Devices) != 2 || verdicts.State != "ok" {
			return fmt.Errorf("%d verdicts, %s", len(verdicts.Devices), verdicts.State)
		}
		return nil
	})
	for _, d := range verdicts.Devices {
		testkit.Equal(t, "state of "+d.ID+": "+d.Text, "ok", d.State)
		var got []string
		for _, u := range d.Unjudged {
			got = append(got, u.Rule)
		}
		testkit.Equal(t, "rules of any vendor's readings that do not judge "+d.ID, commonRules(), got)
	}
}

// commonRules returns the rules that judge readings of all vendors' GPUs, without the toys' only such reading.
func commonRules() (out []string) {
	for _, r := range health.Table() {
		common := slices.DeleteFunc(slices.Clone(r.Readings), func(id field.ID) bool {
			d, known := field.ByID(id)
			return !known || d.Vendor != nil || !d.AskedOf(field.GPU)
		})
		if len(common) > 0 && !slices.Contains(common, field.GPUTemperature) {
			out = append(out, r.Name)
		}
	}
	return out
}

// TestToyConformance runs the collector suite on the toys' collector, and the vendor table's tests on its row.
func TestToyConformance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// Compiled only, because go test runs in the package's folder, which does not exist.
	goTool(t, "test", "-c", "-buildvcs=false", "-vet=off", "-overlay="+overlay(t), "-o", dir, "./collectors/toy", "./pkg/field")
	for name, args := range map[string][]string{"toy": nil, "field": {"-test.run=Vendor|Name|Catalogue|All"}} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, name+".test"), args...)
		cmd.Dir = "../../pkg/field"
		out, err := cmd.CombinedOutput()
		testkit.ErrorIf(t, err != nil, "tests of %s: %v\n%s", name, err, out)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if must(t, err); resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s", url, resp.Status)
	}
	return string(text)
}

func decode(t *testing.T, url string, to any) {
	t.Helper()
	must(t, json.Unmarshal([]byte(get(t, url)), to))
}
