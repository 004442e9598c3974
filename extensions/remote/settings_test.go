package remote

import (
	"strings"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/config/configtest"
)

func TestRemoteFlags(t *testing.T) {
	on := func(more ...string) []string {
		return append([]string{"--remote-config=apply", "--remote-url=https://user:secret@lists/x"}, more...)
	}
	for _, c := range []struct {
		args []string
		want string // part of the error; empty: valid
	}{
		{args: []string{"--remote-url=garbage", "--remote-interval=0s"}}, // ignored, because the mode is off
		{args: on()},
		{args: []string{"--remote-config=apply"}, want: "without --remote-url"},
		{args: []string{"--remote-config=report", "--remote-url=ftp://user:secret@x/y"}, want: "one of the schemes"},
		{args: []string{"--remote-config=report", "--remote-url=https:///y"}, want: "write a host"},
		{args: []string{"--remote-config=report", "--remote-url=https://user:secret@%zz/"}, want: "cannot be read"},
		{args: []string{"--remote-config=report", "--remote-url=opamp+https://x/v1/opamp"}},
		{args: on("--remote-interval=100ms"), want: "--remote-interval is 100ms"},
		{args: on("--remote-cert-file=/x"), want: "belong together"},
		{args: on("--remote-cert-file=/x", "--remote-key-file=/y")},
		{args: on("--remote-directory=lists"), want: "absolute path"},
		{args: on("--remote-allow=profiling,changing-labels")},
		{args: on("--remote-allow=everything"), want: `--remote-allow has "everything"`},
		{args: on("--remote-token-file=/t")},
		{args: []string{"--remote-config=apply", "--remote-url=http://x/", "--remote-token-file=/t"}, want: "use TLS"},
		{args: []string{"--remote-config=apply", "--remote-url=opamp+http://x/", "--remote-token-file=/t"}, want: "use TLS"},
		{args: []string{"--remote-config=apply", "--remote-url=opamp+wss://x/"}, want: "one of the schemes"},
		{args: []string{"--remote-config=apply", "--remote-url=http://127.0.0.1:8500/v1/kv/x?raw", "--remote-token-file=/t"}},
		{args: []string{"--remote-config=apply", "--remote-url=opamp+http://[::1]/", "--remote-token-file=/t"}},
	} {
		_, _, err := configtest.Parse(t, nil, []configtest.Flags{NewExtension()}, c.args...)
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
	e := NewExtension()
	_, _, err := configtest.Parse(t, map[string]string{"WARPGAUGE_REMOTE_LIMIT": "fields=7,cost=0.1"}, []configtest.Flags{e}, "--node-label", "rack=r7,zone=a", "--node-label=pool=x=y")
	must(t, err)
	want := defaults().Limits
	want.Fields, want.Cost = 7, 0.1
	if r := e; r.Limits != want || r.NodeLabels["rack"] != "r7" || r.NodeLabels["zone"] != "a" || r.NodeLabels["pool"] != "x=y" {
		t.Errorf("limits %+v, labels %v", r.Limits, r.NodeLabels)
	}
	e = NewExtension()
	_, _, err = configtest.Parse(t, nil, []configtest.Flags{e}, "--remote-limit=bytes=2MiB,series=9,interval=1s")
	must(t, err)
	testkit.Equal(t, "limits", Limits{Bytes: 2 << 20, Fields: 500, Series: 9, Interval: time.Second, Cost: 0.5, Lost: 0.5}, e.Limits)
	for _, bad := range []string{
		"--remote-limit=fields", "--remote-limit=fields=x", "--remote-limit=speed=1", "--remote-limit=fields=0", "--remote-limit=cost=NaN", "--remote-limit=lost=0", "--remote-limit=interval=1",
		"--node-label=rack", "--node-label=a b=c", "--node-label=x=" + strings.Repeat("y", 300), "--remote-config=maybe",
	} {
		if _, _, err := configtest.Parse(t, nil, []configtest.Flags{NewExtension()}, bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	s, _, err := configtest.Parse(t, nil, []configtest.Flags{NewExtension()}, "--remote-interval=5s")
	must(t, err)
	if n := s.Notices(); len(n) != 1 || !strings.Contains(n[0].Text, "--remote-interval has no effect without --remote-config") {
		t.Errorf("notices = %v", n)
	}
	s, _, err = configtest.Parse(t, map[string]string{"WARPGAUGE_REMOTE_URL": "https://user:secret@x/", "WARPGAUGE_REMOTE_CONFIG": "apply"}, []configtest.Flags{NewExtension()})
	must(t, err)
	if got := s.Arguments(); len(got) > 0 { // any user can read them
		t.Errorf("arguments of a child: %q", got)
	}
}
