package helm_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"warpgauge/etc"
	"warpgauge/extensions/accounts"
	"warpgauge/extensions/amd"
	health "warpgauge/extensions/health/extension"
	"warpgauge/extensions/live"
	recorder "warpgauge/extensions/recorder/extension"
	"warpgauge/extensions/remote"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/config"
)

// pod lists the parts of a DaemonSet that an administrator must approve, and its flags without those of every pod.
type pod struct {
	Kinds []string // of the release, without DaemonSets, Service and ServiceAccount
	Rules []string // "resources: verbs" of ClusterRoles and Roles
	User  int64
	Token bool
	Host  []string // paths, "pid", "network", "privileged", capabilities
	Args  []string
	Env   []string // "name" or "name=value", without variables from the downward API
}

const kubelet, remembered = "/var/lib/kubelet/pod-resources", "/var/lib/warpgauge/health/"

// TestPods pins the permissions of the variants that are not among the plain manifests, which TestGenerated compares. Each
// added line is an added permission.
func TestPods(t *testing.T) {
	roles := []string{"ClusterRole", "ClusterRoleBinding"}
	for _, c := range []struct {
		variant   string
		component string
		want      pod
	}{
		{"shared", "nvidia", pod{
			Host: []string{kubelet, remembered + "nvidia"},
			Args: []string{"--kubernetes", "--kubernetes-virtual-gpus", "--process-values=false"},
		}},
		{"mig", "nvidia", pod{
			Host: []string{kubelet, remembered + "nvidia", "SYS_ADMIN"},
			Args: []string{"--kubernetes"}, Env: []string{"NVIDIA_MIG_MONITOR_DEVICES=all"},
		}},
		{"amd-partitions", "amd", pod{
			Host: []string{kubelet, remembered + "amd", "privileged"}, Args: []string{"--collectors=/etc/warpgauge/amd-counters.csv", "--kubernetes"},
		}},
		{"slurm", "nvidia", pod{
			User: 65532, Host: []string{"/run/warpgauge/jobs"},
			Args: []string{"--hpc-job-mapping-dir=/run/warpgauge/jobs", "--health-directory=/var/lib/warpgauge-health/state"},
		}},
		{"gpu-operator-dra", "nvidia", pod{
			Kinds: []string{"ClusterRole", "ClusterRoleBinding", "ResourceClaimTemplate"}, Rules: []string{"resourceslices: list watch", "resourceclaims: get"}, Token: true,
			Host: []string{kubelet, remembered + "nvidia", "claim gpus"}, Args: []string{"--kubernetes", "--kubernetes-enable-dra"},
		}},
		{"profiling", "nvidia", pod{
			Host: []string{kubelet, remembered + "nvidia", "SYS_ADMIN"},
			Args: []string{"--collectors=/etc/warpgauge/recommended-counters.csv", "--kubernetes"},
		}},
		{"host-engine", "nvidia", pod{
			Host: []string{kubelet, remembered + "nvidia", "network"},
			Args: []string{"--kubernetes", "--remote-hostengine-info=localhost:5555"},
		}},
		{"gke", "nvidia", pod{
			Host: []string{"/home/kubernetes/bin/nvidia", kubelet, remembered + "nvidia", "privileged"},
			Args: []string{"--kubernetes", "--nvml-driver-root=/driver-root"},
		}},
		{"prometheus-operator", "nvidia", pod{
			Kinds: []string{"ConfigMap", "ConfigMap", "ConfigMap", "ConfigMap", "ConfigMap", "ConfigMap", "ConfigMap", "PrometheusRule", "PrometheusRule", "ServiceMonitor"},
			Host:  []string{kubelet, remembered + "nvidia"}, Args: []string{"--collectors=/etc/warpgauge/recommended-counters.csv", "--kubernetes"},
		}},
		{"https", "nvidia", pod{
			Kinds: []string{"NetworkPolicy", "PodMonitor", "Secret"}, Host: []string{kubelet, remembered + "nvidia"},
			Args: []string{"--web-config-file=/etc/warpgauge/web/web-config.yaml", "--kubernetes"},
		}},
		{"counters", "nvidia", pod{
			Kinds: []string{"ConfigMap"}, Host: []string{kubelet, remembered + "nvidia"},
			Args: []string{"--collectors=/etc/warpgauge/counters/counters.csv", "--kubernetes"},
		}},
		{"health", "nvidia", pod{
			Kinds: []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}, Rules: []string{"nodes/status: patch", "events: create"}, Token: true,
			Host: []string{kubelet, remembered + "nvidia"},
			Args: []string{"--kubernetes", "--health-node-condition", "--health-node-events"},
		}},
		{"health", "amd", pod{
			Kinds: []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}, Rules: []string{"nodes/status: patch", "events: create"}, Token: true,
			Host: []string{"/var/lib/amd-metrics-exporter", kubelet, remembered + "amd"},
			Args: []string{
				"--collectors=/etc/warpgauge/amd-counters.csv", "--kubernetes",
				"--health-amd-socket=/var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket", "--health-node-condition", "--health-node-events",
			},
		}},
		{"kernel-log", "nvidia", pod{Host: []string{"/dev/kmsg", kubelet, remembered + "nvidia", "privileged"}, Args: []string{"--kubernetes", "--kernel-log=/dev/kmsg"}}},
		{"remote", "nvidia", pod{
			Host: []string{kubelet, remembered + "nvidia"},
			Args: []string{
				"--kubernetes", "--remote-config=apply", "--remote-url=https://lists.example/gpu.csv", "--remote-directory=/var/lib/warpgauge-remote/state",
				"--remote-limit=cost=0.2,series=20000", "--node-label=node=$(NODE_NAME)", "--node-label=pool=training",
				"--remote-token-file=/etc/warpgauge/remote-token/token", "--remote-ca-file=/etc/warpgauge/remote-ca/ca.crt",
			},
		}},
		{"fleet", "nvidia", pod{
			Kinds: []string{"ClusterRoleBinding", "ConfigMap", "ConfigMap", "Deployment", "NetworkPolicy", "PersistentVolumeClaim", "ServiceMonitor"}, Host: []string{kubelet, remembered + "nvidia"},
			Args: []string{
				"--kubernetes", "--remote-config=apply", "--remote-url=opamp+https://gpu-warpgauge-fleet.monitoring.svc:4320/v1/opamp", "--remote-directory=/var/lib/warpgauge-remote/state",
				"--node-label=pool=training", "--remote-token-file=/etc/warpgauge/remote-token/token", "--remote-ca-file=/etc/warpgauge/remote-ca/ca.crt",
			},
		}},
		{"amd-exporter", "amd", pod{
			Kinds: roles, Rules: []string{"nodes: get update"}, Token: true,
			Host: []string{"/var/lib/amd-metrics-exporter", kubelet, remembered + "amd", "/var/run/exporter", "privileged"},
			Args: []string{
				"--address=:5000", "--collectors=/etc/warpgauge/amd-counters.csv", "--amd-config=/etc/warpgauge/amd/config.json", "--kubernetes",
				"--hpc-job-mapping-dir=/var/run/exporter", "--hpc-job-labels=user,partition",
				"--health-amd-socket=/var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket", "--health-node-labels",
			},
		}},
	} {
		t.Run(c.variant+"/"+c.component, func(t *testing.T) {
			o := render(t, c.variant)
			d := o.daemonSets[c.component]
			if d == nil {
				t.Fatalf("there is no DaemonSet for %s", c.component)
			}
			testkit.Equal(t, "", c.want, summary(t, o, d))
		})
	}
}

// everyPod lists flags that do not depend on the variant.
var everyPod = []string{"--enable-only=dcgm,nvml", "--enable-only=rocm", "--collector-memory-limit=256MiB", "--collector-memory-limit=512MiB", recordings, "--recorder-bytes=256MiB", "--health-directory=/var/lib/warpgauge-health"}

const recordings = "--recorder-directory=/var/lib/warpgauge/recordings"

func summary(t *testing.T, o *objects, d *appsv1.DaemonSet) pod {
	t.Helper()
	spec, c := d.Spec.Template.Spec, container(t, d)
	p := pod{User: *c.SecurityContext.RunAsUser, Token: *spec.AutomountServiceAccountToken}
	for _, k := range o.kinds {
		if !slices.Contains([]string{"DaemonSet", "Service", "ServiceAccount"}, k) {
			p.Kinds = append(p.Kinds, k)
		}
	}
	for _, role := range o.roles {
		for _, r := range role.Rules {
			p.Rules = append(p.Rules, strings.Join(r.Resources, " ")+": "+strings.Join(r.Verbs, " "))
		}
	}
	p.Host = hosts(spec, c)
	for _, a := range c.Args {
		if !slices.Contains(everyPod, a) {
			p.Args = append(p.Args, a)
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			p.Env = append(p.Env, e.Name+"="+e.Value)
		}
	}
	return p
}

// hosts returns the parts of the node that a pod can access, sorted.
func hosts(spec corev1.PodSpec, c *corev1.Container) (out []string) {
	for _, v := range spec.Volumes {
		if v.HostPath != nil {
			out = append(out, v.HostPath.Path)
		}
	}
	for name, on := range map[string]bool{
		"pid": spec.HostPID, "network": spec.HostNetwork, "ipc": spec.HostIPC,
		"privileged": c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged,
	} {
		if on {
			out = append(out, name)
		}
	}
	if c.SecurityContext.Capabilities != nil {
		for _, added := range c.SecurityContext.Capabilities.Add {
			out = append(out, string(added))
		}
	}
	for _, claim := range c.Resources.Claims {
		out = append(out, "claim "+claim.Name)
	}
	slices.Sort(out)
	return out
}

// TestEveryPod checks the rules for all variants and for the server of lists.
func TestEveryPod(t *testing.T) {
	for _, v := range variants(t) {
		o := render(t, v)
		pods := map[string]corev1.PodSpec{}
		for component, d := range o.daemonSets {
			pods[component] = d.Spec.Template.Spec
		}
		for _, d := range o.deployments {
			pods["fleet"] = d.Spec.Template.Spec
			if h := hosts(pods["fleet"], &pods["fleet"].Containers[0]); h != nil || !*pods["fleet"].SecurityContext.RunAsNonRoot {
				t.Errorf("%s: the server of lists has %q of the host, or may be root", v, h)
			}
		}
		for component, spec := range pods {
			t.Run(v+"/"+component, func(t *testing.T) {
				c := &spec.Containers[0]
				sc := c.SecurityContext
				// https://kubernetes.io/docs/concepts/security/pod-security-standards/
				if sc.Privileged == nil && (sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation || !slices.Equal(sc.Capabilities.Drop, []corev1.Capability{"ALL"})) {
					t.Errorf("may grow: %+v", sc)
				}
				if !*sc.ReadOnlyRootFilesystem || spec.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
					t.Error("the root file system is writable, or there is no seccomp profile")
				}
				checkMounts(t, spec, c)
				for name, p := range map[string]*corev1.Probe{"liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
					if p.HTTPGet != nil && !slices.Contains([]string{"/livez", "/readyz", "/healthz"}, p.HTTPGet.Path) {
						t.Errorf("%s probe asks %s", name, p.HTTPGet.Path)
					}
				}
				if c.Resources.Limits.Cpu().Sign() != 0 || c.Resources.Limits.Memory().Sign() == 0 {
					t.Errorf("limits %v: want one for memory and none for CPU", c.Resources.Limits)
				}
				if !strings.HasPrefix(c.Image, "warpgauge:") {
					t.Errorf("image %q", c.Image)
				}
			})
		}
	}
}

// own lists volumes that our programs write to and that may be something other than an emptyDir.
var own = []string{"recordings", "health", "health-amd-socket", "remote", "state"}

// checkMounts: mounts from the host are read-only, no mount uses subPath (the kubelet never updates those), and each
// volume has a mount.
func checkMounts(t *testing.T, spec corev1.PodSpec, c *corev1.Container) {
	t.Helper()
	volumes := map[string]corev1.Volume{}
	for _, v := range spec.Volumes {
		volumes[v.Name] = v
	}
	for _, m := range c.VolumeMounts {
		v, ok := volumes[m.Name]
		switch {
		case !ok:
			t.Errorf("mount %q has no volume", m.Name)
		case m.SubPath != "":
			t.Errorf("mount %q is by subPath", m.Name)
		case !m.ReadOnly && v.EmptyDir == nil && !slices.Contains(own, m.Name):
			t.Errorf("mount %q is writable", m.Name)
		}
		delete(volumes, m.Name)
	}
	for name := range volumes {
		t.Errorf("volume %q is mounted nowhere", name)
	}
}

// TestRecordings: recordings are on the node or off. By default they are in an emptyDir, as the plain manifests show.
func TestRecordings(t *testing.T) {
	for value, on := range map[string]bool{"recorder.enabled=false": false, `recorder.hostPath="/srv/recordings"`: true} {
		for component, d := range render(t, "", value).daemonSets {
			spec, c := d.Spec.Template.Spec, container(t, d)
			if slices.Contains(c.Args, recordings) != on || slices.Contains(hosts(spec, c), "/srv/recordings") != on {
				t.Errorf("%s, %s: arguments %q, volumes %v", value, component, c.Args, spec.Volumes)
			}
			checkMounts(t, spec, c)
		}
	}
}

// TestTheExporterTakesTheFlags: the exporter knows each flag, the flag has an effect, and its file is in the image or
// mounted.
func TestTheExporterTakesTheFlags(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "config.json")
	must(t, os.WriteFile(empty, []byte("{}"), 0o600))
	all := []string{`debugDump.enabled=true`, `collectInterval=100`, `logLevel="debug"`, `logFormat="json"`, `hostnameLabel="Hostname"`, `service.port=9401`, `kubernetes.resourceNames=["a.b/c","d.e/f"]`}
	for _, v := range variants(t) {
		for component, d := range render(t, v, all...).daemonSets {
			args := slices.Clone(container(t, d).Args)
			for i, a := range args {
				if strings.HasPrefix(a, "--amd-config=") {
					args[i] = "--amd-config=" + empty // the user provides the ConfigMap
				}
			}
			cfg, err := parse(t, args)
			if err != nil {
				t.Errorf("%q, %s: %v", v, component, err)
				continue
			}
			port := int32(9401)
			if v == "amd-exporter" {
				port = 5000
			}
			if cfg.Web.Address != fmt.Sprintf(":%d", port) || container(t, d).Ports[0].ContainerPort != port {
				t.Errorf("%q, %s: address %q", v, component, cfg.Web.Address)
			}
			name, inImage := strings.CutPrefix(cfg.Collectors, "/etc/warpgauge/")
			if inImage && !strings.Contains(name, "/") {
				if _, err := etc.Files().ReadFile(name); err != nil {
					t.Errorf("%q, %s: %v", v, component, err)
				}
			}
		}
	}
	for _, preset := range []string{"default", "recommended", "amd", "dcp-metrics-included", "1.x-compatibility-metrics"} {
		cfg, err := parse(t, container(t, render(t, "", fmt.Sprintf("nvidia.counters.preset=%q", preset)).daemonSets["nvidia"]).Args)
		if err != nil {
			t.Errorf("preset %s: %v", preset, err)
			continue
		}
		if name := strings.TrimPrefix(cfg.Collectors, "/etc/warpgauge/"); preset != "default" {
			if _, err := etc.Files().ReadFile(name); err != nil {
				t.Errorf("preset %s: %v", preset, err)
			}
		}
	}
}

// parse reads a command line as the exporter does. A flag without effect is an error.
func parse(t *testing.T, args []string) (*config.Config, error) {
	t.Helper()
	set := config.NewSet(func(string) (string, bool) { return "", false })
	for _, e := range []interface{ Flags(*config.Set) }{live.New(), recorder.New(), health.New(), remote.NewExtension(), new(amd.Extension), accounts.NewExtension()} {
		e.Flags(set)
	}
	var rest []string
	cmd := &cli.Command{Name: "warpgauge", Flags: set.CLI(), Action: func(_ context.Context, c *cli.Command) error {
		rest = c.Args().Slice()
		return nil
	}}
	if err := cmd.Run(t.Context(), append([]string{"warpgauge"}, args...)); err != nil {
		return nil, err
	}
	for _, n := range set.Notices() {
		return nil, fmt.Errorf("%s", n.Text)
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("arguments %q are no flags", rest)
	}
	return set.Config()
}
