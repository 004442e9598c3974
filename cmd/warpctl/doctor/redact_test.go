package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"testing"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/tree"
)

var must = testkit.Must

// planted holds names and secrets of all kinds.
var planted = map[string]string{
	"pod": "trainer-zq7x-a-b-c-d-e-f-g-h-0", "other pod": "ghost-pod-9k2", "namespace": "team-zephyr", "container": "zephyrmain", "job": "4471193", "short job": "77",
	"pod uid": "8c2f4a8e-1111-4222-8333-944455556666", "process": "zephyrtrain", "host": "gpu-zonda-17", "domain": "cluster.zonda.example.org", "other host": "vault-zonda",
	"user": "mzimmer", "home": "kzander", "IPv4": "10.77.12.199", "IPv6": "2001:db8:77::1f", "MAC": "52:54:00:ab:cd:ef", "e-mail": "m.zimmer@zonda.example",
	"token": "tok-ZZZZsecret1", "bearer": "ZmFrZS1iZWFyZXItdG9rZW4", "password": "hunter2zz", "password in a URL": "urlpass77x", "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ6b25kYSJ9.c2lnbmF0dXJlenp6",
	"key": "QUtJQVpaWlpaWlpaWlpaWg", "bcrypt": "$2y$10$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234", "API key": "zzapikey123456", "cookie": "sessionzz99",
	"container id": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "job of a cgroup": "5566778", "job of a label": "sweep-zl", "job of a fact": "sweep-zf", "job of a user": `"zu" sweep`, "job of a process": `"zp" sweep`,
}

// plant puts them into every source of doctor.
func plant(o *Options) map[string]string {
	p := planted
	files := with(healthy,
		"etc/hostname", p["host"]+"\n",
		"etc/passwd", "root:x:0:0::/root:/bin/sh\n"+p["user"]+":x:1000:1000::/home/"+p["home"]+":/bin/sh\n",
		"etc/resolv.conf", "search "+p["domain"]+"\nnameserver "+p["IPv4"]+"\n",
	)
	o.Environ = []string{"NODE_NAME=" + p["host"] + "." + p["domain"], "USER=" + p["user"], "POD_NAME=" + p["pod"], "POD_NAMESPACE=" + p["namespace"], "TOKEN=" + p["token"]}
	pod := p["namespace"] + "/" + p["pod"] + "/" + p["container"]
	e := serving()
	e.devices.Hostname = p["host"]
	e.devices.Collectors[1].Reason = fmt.Sprintf("dial tcp %s:5555: lookup %s.%s: no such host; http://%s:%s@%s/x", p["IPv4"], p["other host"], p["domain"], p["user"], p["password in a URL"], p["other host"])
	d := &e.devices.Devices[0]
	d.State, d.Cause, d.Status = "stalled", "error", apiv1.Status{Word: "stalled", Why: "job " + p["short job"] + " of " + p["user"] + " in pod " + p["pod"] + " holds it like " + p["job of a user"] + " and " + p["job of a process"]}
	d.Users = []apiv1.User{{Namespace: p["namespace"], Pod: p["pod"], PodUID: p["pod uid"], Container: p["container"], Job: p["job"]}, {Job: p["short job"]}, {Job: p["job of a user"]}}
	d.Processes = []apiv1.Process{{PID: 99, Name: p["process"], Pod: pod, Job: p["job"]}, {Job: p["job of a process"]}}
	d.Labels, d.Facts = map[string]string{"hostname": p["host"], "hpc_job": p["job of a label"]}, map[string]string{"exported_pod": p["other pod"], "slurm_job_id": p["job of a fact"]}
	e.fields.Devices[0].Fields = append(e.fields.Devices[0].Fields, apiv1.Field{
		Name: "x", Labels: map[string]string{"pod": p["other pod"]}, Absent: &apiv1.Absence{Reason: "permission", Detail: "not for " + p["user"] + " at " + p["IPv6"]},
	})
	e.health.Reasons = []string{"pod " + p["pod"] + " at " + p["IPv4"]}
	e.health.Devices[0].Reason = "owner " + pod
	e.list.Source = "/home/" + p["home"] + "/list.csv"
	e.list.LastError = "token: " + p["token"] + " in " + p["namespace"] + ":list"
	e.events = &apiv1.Events{Events: []apiv1.Event{{Kind: "xid", Text: "XID 13 by process " + p["process"] + " of job " + p["job"]}}}
	e.page = "warpgauge_build_info{hostname=\"" + p["host"] + "\",pod=\"" + p["other pod"] + "\"} 1\n"
	o.Exporter = e
	files = with(files, "proc/77/comm", "warpgauge\n", "proc/77/cmdline", strings.Join([]string{"warpgauge", "-k",
		"--web-config-file=/home/" + p["home"] + "/web.yml", "--remote-hostengine-info=" + p["other host"] + "." + p["domain"] + ":5555",
		"--pod-resources-kubelet-socket=/home/" + p["home"] + "/kubelet.sock", "--hpc-job-mapping-dir=/jobs/" + p["user"]}, "\x00")+"\x00")
	o.journal = func(context.Context) ([]byte, error) {
		lines := []string{
			"2026-05-04T12:00:00+0000 " + p["host"] + " warpgauge[77]: INFO owners: mapping {\"pod\": \"" + p["other pod"] + "\", \"namespace\": \"" + p["namespace"] + "\"}",
			"ERROR kube: Get \"https://" + p["IPv4"] + ":6443/api\": Authorization: Bearer " + p["bearer"] + ", password=" + p["password"],
			"WARN {\"level\":\"warn\",\"api_key\":\"" + p["API key"] + "\",\"user\":\"" + p["user"] + "\",\"jwt\":\"" + p["JWT"] + "\"}",
			"-----BEGIN PRIVATE KEY-----\n" + p["key"] + "\n-----END PRIVATE KEY-----",
			"basic_auth_users: " + p["user"] + ": " + p["bcrypt"],
			"peer " + p["IPv6"] + " mac " + p["MAC"] + " mail " + p["e-mail"] + " Cookie: sid=" + p["cookie"],
			"cgroup /kubepods.slice/kubepods-burstable-pod" + strings.ReplaceAll(p["pod uid"], "-", "_") + ".slice/cri-containerd-" + p["container id"] + ".scope",
			"cgroup /system.slice/slurmstepd.scope/job_" + p["job of a cgroup"] + "/step_0 job_id=" + p["short job"] + " GPU-8c2f4a8e-2222-4222-8333-944455556666 00000000:3B:00.0 driver 550.54.15",
		}
		return []byte(strings.Join(lines, "\n") + "\n"), nil
	}
	return files
}

// unpack returns the files of a bundle.
func unpack(t *testing.T, bundle []byte) map[string]string {
	t.Helper()
	z := testkit.Get(gzip.NewReader(bytes.NewReader(bundle)))(t)
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		must(t, err)
		text := testkit.Get(io.ReadAll(r))(t)
		testkit.ErrorIf(t, h.Mode != 0o600 || !strings.HasPrefix(h.Name, "warpgauge-doctor/") || path.Clean(h.Name) != h.Name, "file %q has mode %o", h.Name, h.Mode)
		out[strings.TrimPrefix(h.Name, "warpgauge-doctor/")] = string(text)
	}
}

func bundle(t *testing.T, r *Result, redacted bool) map[string]string {
	t.Helper()
	var b bytes.Buffer
	must(t, r.Bundle(&b, redacted))
	return unpack(t, b.Bytes())
}

// TestRedactedBundle: no planted name or secret is in any file of the bundle.
func TestRedactedBundle(t *testing.T) {
	r := examine(t, healthy, func(o *Options) {
		files := plant(o)
		o.Root = tree.Write(t, files)
	})
	files := bundle(t, r, true)
	for _, name := range []string{"README.txt", "report.txt", "report.json", "facts.json", "settings.txt", "log.txt", "exporter/devices.json", "exporter/fields.json", "exporter/health.json", "exporter/list.json", "exporter/events.json", "exporter/own-metrics.txt"} {
		testkit.ErrorIf(t, len(files[name]) < 3, "the bundle has no %s", name)
	}
	all := bundle(t, r, false)
	for kind, secret := range planted {
		found := false
		for name, text := range files {
			pattern := regexp.MustCompile(`(?i)` + regexp.QuoteMeta(secret))
			if kind == "short job" { // a short number is everywhere
				pattern = regexp.MustCompile(`(?i)(job[^0-9]{0,6}|"job": ")77\b`)
			}
			if at := pattern.FindStringIndex(text); at != nil {
				t.Errorf("%s has the %s %q: %q", name, kind, secret, text[max(at[0]-60, 0):min(at[1]+20, len(text))])
			}
			found = found || strings.Contains(all[name], secret)
		}
		testkit.ErrorIf(t, !found && kind != "pod uid" && secret != planted["token"], "the %s is in no file without redaction: this test shows nothing", kind)
	}
	// Useful texts remain, and a name has the same pseudonym everywhere.
	for name, texts := range map[string][]string{
		"log.txt":               {"GPU-8c2f4a8e-2222-4222-8333-944455556666", "00000000:3B:00.0", "driver 550.54.15", "warpgauge[77]"},
		"facts.json":            {`"kernel": "6.8.0-45-generic"`, `"/dev/nvidia0"`},
		"exporter/devices.json": {`"pid": 99`, `"cause": "error"`},
		"report.txt":            {"NVIDIA driver", "PROBLEM"},
	} {
		testkit.Has(t, name, files[name], texts...)
	}
	pod := regexp.MustCompile(`"pod": "(pod-\d+)"`).FindStringSubmatch(files["exporter/devices.json"])
	if pod == nil || !strings.Contains(files["exporter/health.json"], "pod "+pod[1]) {
		t.Errorf("the pod has different pseudonyms: %v and\n%s", pod, files["exporter/health.json"])
	}
}

// TestBundleIsBounded: large sources do not make a large bundle.
func TestBundleIsBounded(t *testing.T) {
	r := examine(t, healthy, func(o *Options) {
		o.journal = func(context.Context) ([]byte, error) {
			return bytes.Repeat([]byte(strings.Repeat("x ", 50)+"\n"), 200_000), nil
		}
	})
	testkit.Between(t, "bytes of the log", maxFile/4, maxFile, len(bundle(t, r, false)["log.txt"]))
}

// TestRedactor: pseudonyms are stable; values and public words remain.
func TestRedactor(t *testing.T) {
	r := newRedactor()
	r.name("pod", "llm-0")
	r.name("job", "77")
	r.name("user", "ann")
	r.name("process", "my tool")
	r.host("gpu-7.example.org")
	for in, want := range map[string]string{
		"llm-0 and LLM-0.svc, xllm-0":          "pod-1 and pod-1.svc, xllm-0",
		"77 W, job 77, job_id=77, 0.77":        "77 W, job job-1, job_id=job-1, 0.77",
		"banned ann-x":                         "banned user-1-x",
		"my tool ended":                        "process-1 ended",
		"gpu-7: gpu-7.example.org example.org": "host-1: host-1 domain-1",
		"user=root namespace=default":          "user=root namespace=default",
		"listen 127.0.0.1:9400 [::]:9400":      "listen 127.0.0.1:9400 [::]:9400",
		"10.0.0.1 10.0.0.2 10.0.0.1":           "ip-1 ip-2 ip-1",
		"at 12:01:29, 3B:00.0, v1.2.3":         "at 12:01:29, 3B:00.0, v1.2.3",
		strings.Repeat("a.", 10_000) + "ann":   strings.Repeat("a.", 10_000) + "user-1", // must be fast
		"https://docs.nvidia.com/x":            "https://docs.nvidia.com/x",
	} {
		testkit.Equal(t, in, want, r.text(in))
	}
}
