//go:build linux && cgo

package dcgm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// clientVariable makes the test binary a client of the engine whose library it names.
const clientVariable = "WARPGAUGE_DCGM_CLIENT"

// clientFields are what each client reads.
var clientFields = []string{
	temperature, power, energy, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_NVLINK_GET_STATE", healthName, xidCount,
}

// client opens a collector, writes how many values it has or the error, and closes it
// when standard input ends.
func client(library string) error {
	var csv strings.Builder
	for _, name := range clientFields {
		fmt.Fprintf(&csv, "%s, gauge, text\n", name)
	}
	fields, _, err := field.Parse(strings.NewReader(csv.String()), field.ParseOptions{})
	if err != nil {
		return err
	}
	c := New(Options{Library: library, Engine: "localhost:5555"})
	sources, err := c.Open(context.Background(), fields)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return err
	}
	values := 0
	for _, s := range sources {
		row, due := make([]float64, len(s.Columns())), make([]bool, len(s.Columns()))
		for i := range row {
			row[i], due[i] = math.NaN(), true
		}
		for end := time.Now().Add(10 * time.Second); err != nil || values == 0; {
			if err = s.Sample(row, due); errors.Is(err, collector.ErrStalled) && time.Now().Before(end) {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			break
		}
		if err != nil {
			fmt.Fprintln(os.Stdout, err)
			return err
		}
		for _, v := range row {
			if !math.IsNaN(v) {
				values++
			}
		}
	}
	fmt.Fprintln(os.Stdout, values, "values")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return c.Close()
}

// clientProcess is a client in its own process.
type clientProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Reader
}

func startClient(tb testing.TB, e *dcgmtest.Engine) *clientProcess {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), exe)
	cmd.Env = append(os.Environ(), clientVariable+"="+e.Library())
	cmd.Stderr = os.Stderr
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		tb.Fatal(err)
	}
	return &clientProcess{cmd, stdin, bufio.NewReader(stdout)}
}

func (p *clientProcess) reported(tb testing.TB) string {
	tb.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func (p *clientProcess) close(tb testing.TB) {
	tb.Helper()
	_ = p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		tb.Errorf("client: %v", err)
	}
}

// TestManyClients: several exporters on one engine, in several processes, each have all
// their series; so has the one that replaces a process that was killed, and a second
// collector in a process.
func TestManyClients(t *testing.T) {
	e := simulate(t, dcgmtest.Config{GPUs: 2})
	first := startClient(t, e)
	want := first.reported(t)
	if !strings.HasSuffix(want, " values") || strings.HasPrefix(want, "0 ") {
		t.Fatalf("the only client: %s", want)
	}
	all := []*clientProcess{first}
	for range 3 {
		all = append(all, startClient(t, e))
	}
	for i, p := range all[1:] {
		if got := p.reported(t); got != want {
			t.Errorf("client %d next to the first: %s, want %s", i+1, got, want)
		}
	}
	if err := all[3].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = all[3].cmd.Wait()
	all[3] = startClient(t, e)
	if got := all[3].reported(t); got != want {
		t.Errorf("after one was killed: %s, want %s", got, want)
	}
	for _, c := range []*opened{open1(t, remote(e), clientFields...), open1(t, remote(e), clientFields...)} {
		c.mustSample(t)
		if v, _ := c.value(t, c.sources[0].Devices()[0].ID, energy); math.IsNaN(v) {
			t.Error("no energy in this process")
		}
	}
	for _, p := range all {
		p.close(t)
	}
}

// TestRefusals: only a field that the engine does not know or support is left out. Any
// other refusal makes Open fail, and so does an engine that offers nothing.
func TestRefusals(t *testing.T) {
	for code, leftOut := range map[int]bool{-6: true, -13: true, -17: true, -36: true, -3: false, -24: false, -26: false, -34: false, -54: false} {
		e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
		e.Refuse(dcgmtest.All(dcgmtest.KindGPU), 150, code)
		_, err := openAs(t, remote(e), temperature, power)
		if leftOut != (err == nil) {
			t.Errorf("code %d: %v, want an error: %v", code, err, !leftOut)
		}
		if _, err := openAs(t, remote(e), temperature); errors.Is(err, collector.ErrNothingToRead) != leftOut || err == nil {
			t.Errorf("code %d for the only field: %v, want %v: %v", code, err, collector.ErrNothingToRead, leftOut)
		}
		if n := e.Counts().Connections; leftOut && n != 1 || !leftOut && n != 0 {
			t.Errorf("code %d: %d connections", code, n)
		}
	}
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	if _, err := openAs(t, remote(e), "DCGM_FI_DEV_CPU_UTIL_TOTAL"); !errors.Is(err, collector.ErrNothingToRead) {
		t.Errorf("a list for CPUs on a node without: %v", err)
	}
}

// TestOddIdentities: of two GPUs with one UUID the second is left out, and text that is
// not UTF-8 is made so.
func TestOddIdentities(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 3})
	e.Set(dcgmtest.GPU(1), fieldUUID, dcgmtest.Text("GPU-twice"))
	e.Set(dcgmtest.GPU(2), fieldUUID, dcgmtest.Text("GPU-twice"))
	e.Set(dcgmtest.GPU(0), fieldName, dcgmtest.Text("H100\xff\xfe"))
	c := open1(t, remote(e), temperature)
	c.mustSample(t)
	got := devices(c)
	if len(got) != 2 || got[1].ID != "GPU-twice" || got[1].GPU != "1" {
		t.Errorf("devices: %+v", got)
	}
	if got[0].Model != "H100\uFFFD" {
		t.Errorf("model %q", got[0].Model)
	}
	if n := c.LeftOut(); n != 1 {
		t.Errorf("%d devices are left out, want one", n)
	}
}

// TestStarting: until the profiling fields have their first values, which come after
// the others, nothing was sampled, and events wait; but not for ever.
func TestStarting(t *testing.T) {
	const profiling = "DCGM_FI_PROF_SM_ACTIVE"
	e := simulate(t, dcgmtest.Config{GPUs: 1})
	e.Set(dcgmtest.GPU(0), 1002, dcgmtest.Blank(dcgmtest.NotFound))
	for _, late := range []bool{true, false} {
		c := open1(t, remote(e), temperature, profiling, xidCount)
		e.XID(0, 13)
		r := c.readings(0)
		clock := time.Now()
		r.now = func() time.Time { return clock }
		for range 2 {
			if err := c.sample(0); !errors.Is(err, errStarting) {
				t.Errorf("before the first value: %v", err)
			}
		}
		if late {
			e.Unset(dcgmtest.GPU(0), 1002)
		} else {
			clock = clock.Add(startPatience)
		}
		if err := c.sample(0); errors.Is(err, errStarting) {
			t.Errorf("still starting: %v", err)
		}
		if got := c.cellsOf(field.XIDEvent, 0, "slot"); got["0"] != " 13" {
			t.Errorf("XIDs in the first row: %v", got)
		}
		if has := c.has(t, c.sources[0].Devices()[0].ID, profiling); has != late {
			t.Errorf("profiling value: %v, want %v", has, late)
		}
		e.Set(dcgmtest.GPU(0), 1002, dcgmtest.Blank(dcgmtest.NotFound))
		if err := c.sample(0); late && err != nil {
			t.Errorf("a blank later on: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
