package benchmarks

import (
	"bufio"
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"warpgauge/internal/testkit/loopback"
)

// BenchmarkStart starts the real binary and measures the time from exec to the
// first page that holds the temperature of every GPU, and the resident memory
// after a second of scrapes.
func BenchmarkStart(b *testing.B) {
	bin := filepath.Join(b.TempDir(), "warpgauge")
	build := exec.CommandContext(b.Context(), "go", "build", "-o", bin, "warpgauge/cmd/warpgauge")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
	for _, gpus := range []int{8, 1000} {
		b.Run("gpus="+strconv.Itoa(gpus), func(b *testing.B) {
			var first time.Duration
			var memory float64
			for b.Loop() {
				d, m := startOnce(b, bin, gpus)
				first, memory = first+d, max(memory, m)
			}
			b.ReportMetric(float64(first.Microseconds())/1000/float64(b.N), "ms-to-complete-page")
			b.ReportMetric(memory/(1<<20), "MiB-resident")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func startOnce(b *testing.B, bin string, gpus int) (toPage time.Duration, resident float64) {
	address := freeAddress(b)
	cmd := exec.CommandContext(b.Context(), bin, "--enable-only=fake", "--fake-devices", strconv.Itoa(gpus), "--address", address,
		"--no-hostname")
	cmd.Stderr = os.Stderr
	if testing.Verbose() {
		cmd.Stdout = os.Stdout
	} else {
		cmd.Stderr = nil
	}
	start := time.Now()
	must(b, cmd.Start())
	defer func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	}()
	url := "http://" + address + "/metrics"
	for {
		if time.Since(start) > time.Minute {
			b.Fatal("no complete page within a minute")
		}
		if gpusOn(url) == gpus {
			toPage = time.Since(start)
			break
		}
		time.Sleep(500 * time.Microsecond)
	}
	for range 10 {
		if gpusOn(url) == 0 {
			b.Fatal("the page is gone")
		}
		time.Sleep(100 * time.Millisecond)
	}
	return toPage, residentBytes(b, cmd.Process.Pid)
}

// gpusOn counts the GPUs that have a temperature on the page.
func gpusOn(url string) (n int) {
	resp, err := http.Get(url)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if bytes.HasPrefix(lines.Bytes(), []byte("DCGM_FI_DEV_GPU_TEMP{")) {
			n++
		}
	}
	return n
}

func freeAddress(b *testing.B) string {
	b.Helper()
	port, err := loopback.Reserve()
	must(b, err)
	b.Cleanup(func() { _ = port.Close() })
	return port.Address()
}
