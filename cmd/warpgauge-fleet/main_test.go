package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/urfave/cli/v3"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"warpgauge/extensions/remote/fleet"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

var must = testkit.Must

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	list    = "DCGM_FI_DEV_GPU_TEMP, gauge, temperature\n"
	cohorts = "version: 1\ncohorts:\n- name: all\n  list: a.csv\n  rollout: {stages: [{percent: 100, soak: 1h}]}\n"
)

func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// start runs the server until the test ends and returns the addresses of agents and operators.
func start(t *testing.T, args ...string) (agents, operators string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var errs programtest.Output
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, append([]string{"warpgauge-fleet", "serve", "--agents-address=127.0.0.1:0", "--address=127.0.0.1:0", "--warmup=0s", "--reload-interval=100ms",
			"--state-directory=" + filepath.Join(t.TempDir(), "state")}, args...), &errs, &errs)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	said := regexp.MustCompile(`"agents":"([^"]+)","operators":"([^"]+)"`)
	eventually.OK(t, "its addresses", func() error {
		m := said.FindStringSubmatch(errs.String())
		if m == nil {
			return fmt.Errorf("said %q", errs.String())
		}
		agents, operators = m[1], m[2]
		return nil
	})
	return agents, operators
}

func TestCommands(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	agents, operators := start(t, "--directory="+directory(t, map[string]string{"fleet.yaml": cohorts, "a.csv": list}), "--token-file="+token)
	command := func(args ...string) (string, error) {
		var out bytes.Buffer
		args = append([]string{"warpgauge-fleet", args[0], "--server=http://" + operators, "--token-file=" + token}, args[1:]...)
		err := run(t.Context(), args, &out, &out)
		return out.String(), err
	}
	says := func(want string, args ...string) {
		t.Helper()
		eventually.OK(t, strings.Join(args, " "), func() error {
			out, err := command(args...)
			if err == nil && !regexp.MustCompile(want).MatchString(out) {
				err = errors.New(out)
			}
			return err
		})
	}
	says(`all +a.csv \S+ +running`, "status")
	says(`all +a.csv \S+ +paused`, "pause", "all")
	if out, err := command("pause", "all"); err == nil || !strings.Contains(err.Error(), "no rollout is running") {
		t.Errorf("pause twice: %v %s", err, out)
	}
	says(`running`, "resume", "all")

	testkit.Equal(t, "status of a report", http.StatusOK, report(t, agents, ""))
	says(`node-1 +observed`, "status", "all")
	says(`stopped.*an operator rolled it back`, "rollback", "all")
	says(`all +a.csv \S+ +running`, "rollout", "all")
	if _, err := command("pause"); err == nil {
		t.Error("pause without a cohort")
	}
	if _, err := command("status", "--server=ftp://x"); err == nil {
		t.Error("a URL of another scheme was taken")
	}
}

// report sends an agent's report over a new connection, and returns the HTTP status.
func report(t *testing.T, agents, token string) int {
	t.Helper()
	m, err := proto.Marshal(&protobufs.AgentToServer{InstanceUid: bytes.Repeat([]byte{1}, 16), AgentDescription: &protobufs.AgentDescription{
		IdentifyingAttributes: []*protobufs.KeyValue{{Key: "host.name", Value: &protobufs.AnyValue{Value: &protobufs.AnyValue_StringValue{StringValue: "node-1"}}}},
	}})
	must(t, err)
	r := testkit.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+agents+fleet.OpAMPPath,
		bytes.NewReader(m)))(t)
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := (&http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	must(t, err)
	_ = response.Body.Close()
	return response.StatusCode
}

// TestStrangersKeepNoPlace: connections of clients that say nothing, or have no token, keep no agent out.
func TestStrangersKeepNoPlace(t *testing.T) {
	token := filepath.Join(t.TempDir(), "tokens")
	must(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	agents, operators := start(t, "--directory="+directory(t, map[string]string{"fleet.yaml": cohorts, "a.csv": list}), "--agents-token-file="+token, "--max-agents=1")
	for i := range 1200 { // more than twice what the server holds
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1+byte(i/200), 1+byte(i%200))}}
		c := testkit.Get(from.DialContext(t.Context(), "tcp", []string{agents, operators}[i%2]))(t)
		defer c.Close()
		if i%4 == 0 {
			fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", fleet.OpAMPPath)
		}
		if i%200 == 199 {
			r, err := http.Get("http://" + operators + "/healthz")
			must(t, err)
			r.Body.Close()
			testkit.Equal(t, fmt.Sprintf("status of a report after %d connections", i+1), http.StatusOK, report(t, agents, "secret"))
		}
	}
}

// TestYAML: the server checks a YAML list by the exporter's rules.
func TestYAML(t *testing.T) {
	const good = "version: 2\nmetrics:\n  fields:\n  - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: x}\n"
	check := func(list string) error {
		_, err := fleet.ReadDirectory(directory(t, map[string]string{"fleet.yaml": "version: 1\ncohorts:\n- {name: all, list: a.yaml}\n", "a.yaml": list}), parseYAML)
		return err
	}
	must(t, check(good))
	for _, bad := range []string{"", "version: 2\n", "x: [", good + "server: {maxConcurrentScrapes: 3}\n"} {
		if err := check(bad); err == nil || !strings.Contains(err.Error(), "a.yaml") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestDocumentedFlags compares the flags in docs/fleet.md with the program's.
func TestDocumentedFlags(t *testing.T) {
	page := testkit.Get(os.ReadFile("../../docs/fleet.md"))(t)
	var want, got []string
	for _, f := range serveCommand(nil).Flags {
		want = append(want, fmt.Sprintf("| `--%s` | ", f.Names()[0]))
		if value := strings.Trim(strings.Replace(f.(cli.DocGenerationFlag).GetValue(), "m0s", "m", 1), `"`); value != "" {
			want[len(want)-1] += "`" + value + "` "
		}
	}
	for line := range strings.Lines(string(page)) {
		if cells := strings.SplitAfterN(line, "|", 4); len(cells) == 4 && strings.HasPrefix(line, "| `--") {
			got = append(got, strings.TrimSuffix(cells[0]+cells[1]+cells[2], "|"))
		}
	}
	testkit.Equal(t, "docs/fleet.md", want, got)
}

// TestBadFlags: the program reports bad flags before it serves.
func TestBadFlags(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		var out bytes.Buffer
		args = append([]string{"warpgauge-fleet", "serve", "--directory=" + t.TempDir(), "--agents-address=127.0.0.1:0", "--address=127.0.0.1:0"}, args...)
		if err := run(t.Context(), args, &out, &out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args[5:], err, want)
		}
	}
	f("--address is [::]:", "--address=0.0.0.0:0")
	f("--agents-address is [::]:", "--agents-address=:0")
	web := filepath.Join(t.TempDir(), "web.yml")
	must(t, os.WriteFile(web, []byte("http_server_config: {headers: {X-Frame-Options: deny}}\n"), 0o600))
	f("others can reach", "--agents-address=:0", "--agents-web-config-file="+web)
	f("--agents-service-account: this is not a pod", "--agents-service-account=gpu/warpgauge")
	f("--token-file", "--token-file=/does/not/exist")
	f("--agents-token-file", "--agents-token-file=/does/not/exist")
	f("--web-config-file", "--web-config-file=/does/not/exist")
	f("--max-agents", "--max-agents=0")
	f("--log-level", "--log-level=loud")
	f("the state", "--state-directory=/proc/x")
}

// TestChart renders the chart and starts the program with its flags and the example directory.
func TestChart(t *testing.T) {
	template, err := os.ReadFile("../../deploy/helm/warpgauge/templates/fleet.yaml")
	must(t, err)
	known := map[string]bool{}
	for _, f := range serveCommand(nil).Flags {
		known["--"+f.Names()[0]] = true
	}
	flags := regexp.MustCompile(`(?m)^ +- (--[a-z-]+)`).FindAllSubmatch(template, -1)
	if len(flags) < 8 {
		t.Fatalf("%d flags in the chart", len(flags))
	}
	for _, m := range flags {
		testkit.ErrorIf(t, !known[string(m[1])], "the chart sets %s, which is no flag", m[1])
	}
	var values struct {
		Fleet struct{ Directory map[string]string }
	}
	text := testkit.Get(os.ReadFile("../../deploy/helm/values/fleet.yaml"))(t)
	must(t, yaml.Unmarshal(text, &values))
	if _, err := fleet.ReadDirectory(directory(t, values.Fleet.Directory), parseYAML); err != nil {
		t.Error(err)
	}
}
