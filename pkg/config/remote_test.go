package config

import (
	"strings"
	"testing"
	"time"

	"warpgauge/pkg/field"
)

func TestRemoteFlags(t *testing.T) {
	on := func(more ...string) []string {
		return append([]string{"--remote-config=apply", "--remote-url=https://user:secret@lists/x"}, more...)
	}
	for _, c := range []struct {
		args []string
		want string // in the error; empty: valid
	}{
		{args: []string{"--remote-url=garbage", "--remote-interval=0s"}}, // not used
		{args: on()},
		{args: []string{"--remote-config=apply"}, want: "without --remote-url"},
		{args: []string{"--remote-config=report", "--remote-url=ftp://user:secret@x/y"}, want: "one of the schemes"},
		{args: []string{"--remote-config=report", "--remote-url=https:///y"}, want: "write a host"},
		{args: []string{"--remote-config=report", "--remote-url=https://user:secret@%zz/"}, want: "cannot be read"},
		{args: []string{"--remote-config=report", "--remote-url=opamp+wss://x/v1/opamp"}},
		{args: on("--remote-interval=100ms"), want: "--remote-interval is 100ms"},
		{args: on("--remote-cert-file=/x"), want: "belong together"},
		{args: on("--remote-cert-file=/x", "--remote-key-file=/y")},
		{args: on("--remote-directory=lists"), want: "absolute path"},
		{args: on("--remote-allow=profiling,changing-labels")},
		{args: on("--remote-allow=everything"), want: `--remote-allow has "everything"`},
		{args: on("--remote-token-file=/t")},
		{args: []string{"--remote-config=apply", "--remote-url=http://x/", "--remote-token-file=/t"}, want: "use TLS"},
		{args: []string{"--remote-config=apply", "--remote-url=opamp+ws://x/", "--remote-token-file=/t"}, want: "use TLS"},
		{args: []string{"--remote-config=apply", "--remote-url=http://127.0.0.1:8500/v1/kv/x?raw", "--remote-token-file=/t"}},
		{args: []string{"--remote-config=apply", "--remote-url=opamp+http://[::1]/", "--remote-token-file=/t"}},
	} {
		s, err := parse(t, nil, c.args...)
		must(t, err)
		_, err = s.Config()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%v: %v, want it valid", c.args, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: %v, want an error with %q", c.args, err, c.want)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("%v: the error shows the password: %v", c.args, err)
		}
	}
}

func TestRemoteLimits(t *testing.T) {
	s, err := parse(t, environment{"WARPGAUGE_REMOTE_LIMIT": "fields=7,cost=0.1"}, "--node-label", "rack=r7,zone=a", "--node-label=pool=x=y")
	must(t, err)
	want := defaultRemote().Limits
	want.Fields, want.Cost = 7, 0.1
	if r := s.config.Remote; r.Limits != want || r.NodeLabels["rack"] != "r7" || r.NodeLabels["zone"] != "a" || r.NodeLabels["pool"] != "x=y" {
		t.Errorf("limits %+v, labels %v", r.Limits, r.NodeLabels)
	}
	s, err = parse(t, nil, "--remote-limit=bytes=2MiB,series=9,interval=1s")
	must(t, err)
	if got := s.config.Remote.Limits; got != (RemoteLimits{Bytes: 2 << 20, Fields: 500, Series: 9, Interval: time.Second, Cost: 0.5}) {
		t.Errorf("limits %+v", got)
	}
	for _, bad := range []string{
		"--remote-limit=fields", "--remote-limit=fields=x", "--remote-limit=speed=1", "--remote-limit=fields=0", "--remote-limit=cost=NaN", "--remote-limit=interval=1",
		"--node-label=rack", "--node-label=a b=c", "--node-label=x=" + strings.Repeat("y", 300), "--remote-config=maybe",
	} {
		if _, err := parse(t, nil, bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	s, err = parse(t, nil, "--remote-interval=5s")
	must(t, err)
	if n := s.Notices(); len(n) != 1 || !strings.Contains(n[0].Text, "--remote-interval has no effect without --remote-config") {
		t.Errorf("notices = %v", n)
	}
}

// TestRemoteFlagsStayInTheirProcess: all users see the arguments of a child.
func TestRemoteFlagsStayInTheirProcess(t *testing.T) {
	s, err := parse(t, environment{"WARPGAUGE_REMOTE_URL": "https://user:secret@x/", "WARPGAUGE_REMOTE_CONFIG": "apply"})
	must(t, err)
	if got := s.Arguments(); len(got) > 0 {
		t.Errorf("arguments of a child: %q", got)
	}
}

const deliveredYAML = `version: 2
metrics:
  fields:
    - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: t}
    - {name: DCGM_FI_DEV_POWER_USAGE, prometheusType: gauge, help: p}
    - {name: DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, prometheusType: counter, help: e}
collections:
  - {name: all, every: 10s, metrics: {include: ["*"]}}
  - {name: power, every: 500ms, metrics: {include: [DCGM_FI_DEV_POWER*]}}
`

func TestParseDelivered(t *testing.T) {
	c, bad, err := ParseDelivered([]byte(deliveredYAML), "x", true)
	if err != nil || len(bad) > 0 {
		t.Fatal(err, bad)
	}
	list := parseList(t, string(c.CSV))
	must(t, c.YAML.Apply(list))
	c.YAML.ApplyInterval(list)
	if got := intervals(list); got[0] != 10*time.Second || got[1] != 500*time.Millisecond || got[2] != 0 {
		t.Errorf("intervals %v, want 10 s, 500 ms, and none of a slow field", got)
	}
	c, _, err = ParseDelivered([]byte("anything"), "x", false)
	if err != nil || string(c.CSV) != "anything" || c.YAML != nil {
		t.Errorf("a CSV: %+v, %v", c, err)
	}
	for text, lines := range map[string][]int{
		"version: 2\nmetrics:\n  file: /etc/shadow\n":                                                                      {3},
		deliveredYAML + "server:\n  maxConcurrentScrapes: 1000\n":                                                          {10},
		deliveredYAML + "sources:\n  dcgm:\n    detectBindUnbind: {enabled: true}\n":                                       {10},
		strings.Replace(deliveredYAML, "metrics:\n", "metrics:\n  enableExporterMetrics: true\n", 1):                       {3},
		strings.Replace(deliveredYAML, "every: 500ms,", "every: 500ms, sources: {dcgm: {watch: {maxKeepSamples: 2}}},", 1): {9},
		"version: 1\nmetrics: &m\n  file: /etc/shadow\n":                                                                   {3},
		"version: 2\nmetrics:\n  <<: {file: /etc/shadow}\n":                                                                {3},
	} {
		_, bad, err := ParseDelivered([]byte(text), "x", true)
		var got []int
		for _, p := range bad {
			got = append(got, p.Line)
		}
		if err != nil || len(got) != len(lines) || got[0] != lines[0] {
			t.Errorf("%q: lines %v, %v; want %v", text, got, err, lines)
		}
	}
	for _, text := range []string{"", "version: 3\n", "version: 2\naddress: :9400\n", "version: 2\nmetrics: {fields: [}", deliveredYAML + "---\nversion: 2\n"} {
		if _, _, err := ParseDelivered([]byte(text), "x", true); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func FuzzParseDelivered(f *testing.F) {
	f.Add([]byte(deliveredYAML))
	f.Add([]byte(yaml1))
	f.Add([]byte(yaml2))
	f.Add([]byte("version: 2\nmetrics: &m\n  <<: *m\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, bad, err := ParseDelivered(text, "x", true)
		if err != nil {
			return
		}
		if c.YAML.file != "" && len(bad) == 0 {
			t.Errorf("%q: the file %q is not refused", text, c.YAML.file)
		}
		list, problems, err := field.Parse(strings.NewReader(string(c.CSV)), field.ParseOptions{})
		if err == nil && c.YAML.Apply(list) == nil {
			c.YAML.ApplyInterval(list)
		}
		c.YAML.Place("x", problems)
	})
}
