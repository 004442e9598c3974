package helm_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/yaml"
)

// their is a value of dcgm-exporter's chart.
type their struct {
	path string
	// def is dcgm-exporter's default as JSON; empty for a value that its values.yaml only mentions in a comment.
	def string
	// value is a setting to try, as JSON. shows is a text that the release contains with it and not without. If shows
	// is empty, the value changes nothing here, and docs/migration.md explains why.
	value, shows string
}

// theirs lists all values of dcgm-exporter's chart 4.8.4, from deployment/values.yaml and deployment/templates of
// https://github.com/NVIDIA/dcgm-exporter at 8dc9e11b50dd. They include all values of 4.8.2 (d5e5f510a1b6) and 4.8.3
// (7ad58324b444). The source of chart 4.9.0 was not available: the list has the values in its release notes, and the
// chart refuses names that are not in values.schema.json.
var theirs = []their{
	{"image.repository", `"nvcr.io/nvidia/k8s/dcgm-exporter"`, `"registry.example/gpu"`, "registry.example/gpu@"},
	{"image.pullPolicy", `"IfNotPresent"`, `"Always"`, "imagePullPolicy: Always"},
	{"image.tag", `"4.6.1-4.8.4-distroless"`, `"v7"`, ""}, // the digest wins, as in dcgm-exporter's chart
	{"image.digest", `""`, `"sha256:` + strings.Repeat("ab", 32) + `"`, "@sha256:abab"},
	{"arguments", `[]`, `["--strict"]`, "--strict"},
	{"config.enabled", `false`, `true`, "--config-file=/etc/warpgauge/config/list.yaml"},
	{"config.create", `true`, `true`, `"list.yaml": |`},
	{"config.name", `""`, `"their-config"`, "configMap: { name: their-config }"},
	{"config.key", `"config.yaml"`, `"list.yaml"`, "config/list.yaml"},
	{"config.mountPath", `"/etc/dcgm-exporter/config.yaml"`, `"/etc/dcgm-exporter/config.yaml"`, ""},
	{"config.data", `"version: 2 …"`, `"version: 2\ncollections:\n  - {name: scrape, every: 31s, metrics: {include: [\"*\"]}}\n"`, "every: 31s"},
	{"imagePullSecrets", `[]`, `[{"name":"pull-secret"}]`, "pull-secret"},
	{"nameOverride", `""`, `"their-name"`, "app.kubernetes.io/name: their-name"},
	{"fullnameOverride", `""`, `"their-full"`, "name: their-full-nvidia"},
	{"namespaceOverride", `""`, `"their-space"`, "namespace: their-space"},
	{"hostPID", `false`, `true`, "hostPID: true"},
	{"runtimeClassName", `""`, `"their-class"`, "runtimeClassName: their-class"},
	{"priorityClassName", `"system-node-critical"`, `"their-priority"`, "priorityClassName: their-priority"},
	{"hostNetwork", `false`, `true`, "hostNetwork: true"},
	{"serviceAccount.create", `true`, `true`, ""},
	{"serviceAccount.annotations", `{}`, `{"account":"note"}`, "account: note"},
	{"serviceAccount.name", `null`, `"their-account"`, "serviceAccountName: their-account"},
	{"serviceAccount.automountServiceAccountToken", `null`, `true`, "automountServiceAccountToken: true"},
	{"rollingUpdate.maxUnavailable", `1`, `3`, "maxUnavailable: 3"},
	{"rollingUpdate.maxSurge", `0`, `2`, "maxSurge: 2"},
	{"podLabels", `{}`, `{"label":"of-pods"}`, "label: of-pods"},
	{"daemonSetAnnotations", `{}`, `{"note":"of-sets"}`, "note: of-sets"},
	{"podAnnotations", `{}`, `{"note":"of-pods"}`, "note: of-pods"},
	{"podSecurityContext", `{}`, `{"fsGroup":2000}`, "fsGroup: 2000"},
	{"securityContext", `{"runAsNonRoot":false,"runAsUser":0,"capabilities":{"add":["SYS_ADMIN"],"drop":["ALL"]},"allowPrivilegeEscalation":false}`,
		`{"runAsNonRoot":false,"runAsUser":0,"capabilities":{"add":["SYS_ADMIN"],"drop":["ALL"]},"allowPrivilegeEscalation":false}`, "- SYS_ADMIN"},
	{"service.enable", `true`, `true`, ""},
	{"service.type", `"ClusterIP"`, `"NodePort"`, "type: NodePort"},
	{"service.internalTrafficPolicy", `"Cluster"`, `"Local"`, "internalTrafficPolicy: Local"},
	{"service.clusterIP", `""`, `"10.0.0.7"`, `clusterIP: "10.0.0.7"`},
	{"service.port", `9400`, `9407`, "containerPort: 9407"},
	{"service.address", `":9400"`, `":9407"`, "--address=:9407"},
	{"service.webReadTimeout", `"10s"`, `"11s"`, "--web-read-timeout=11s"},
	{"service.webWriteTimeout", `"30s"`, `"31s"`, "--web-write-timeout=31s"},
	{"service.annotations", `{}`, `{"note":"of-services"}`, "note: of-services"},
	{"resources", `{"limits":{"cpu":"200m","memory":"512Mi"},"requests":{"cpu":"100m","memory":"128Mi"}}`, `{"limits":{"memory":"777Mi"}}`, "memory: 777Mi"},
	{"serviceMonitor.apiVersion", `"monitoring.coreos.com/v1"`, `"monitoring.coreos.com/v1"`, "apiVersion: monitoring.coreos.com/v1"},
	{"serviceMonitor.enabled", `true`, `true`, "kind: ServiceMonitor"},
	{"serviceMonitor.interval", `"30s"`, `"33s"`, "interval: 33s"},
	{"serviceMonitor.scrapeTimeout", `"25s"`, `"22s"`, "scrapeTimeout: 22s"},
	{"serviceMonitor.honorLabels", `false`, `false`, "honorLabels: false"},
	{"serviceMonitor.additionalLabels", `{}`, `{"label":"of-monitors"}`, "label: of-monitors"},
	{"serviceMonitor.relabelings", `[]`, `[{"targetLabel":"nodename","sourceLabels":["a"]}]`, "targetLabel: nodename"},
	{"serviceMonitor.metricRelabelings", `[]`, `[{"targetLabel":"renamed","sourceLabels":["b"]}]`, "targetLabel: renamed"},
	{"nodeSelector", `{}`, `{"node":"gpu"}`, "node: gpu"},
	{"tolerations", `[{"effect":"NoSchedule","key":"node-role.kubernetes.io/control-plane","operator":"Exists"}]`, `[{"operator":"Exists","key":"their-taint"}]`, "key: their-taint"},
	{"affinity", `{}`, `{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":7,"podAffinityTerm":{"topologyKey":"their-key"}}]}}`, "topologyKey: their-key"},
	{"extraHostVolumes", `[]`, `[{"name":"host-binaries","hostPath":"/opt/their"}]`, "path: /opt/their"},
	{"extraConfigMapVolumes", `[{"configMap":{"items":[{"key":"metrics","path":"default-counters.csv"}],"name":"exporter-metrics-config-map"},"name":"exporter-metrics-volume"}]`,
		`[{"name":"more","configMap":{"name":"their-map"}}]`, "name: their-map"},
	{"extraVolumeMounts", `[{"mountPath":"/etc/dcgm-exporter/default-counters.csv","name":"exporter-metrics-volume","subPath":"default-counters.csv"}]`,
		`[{"name":"more","mountPath":"/their/mount"},{"name":"host-binaries","mountPath":"/opt/bin"}]`, "mountPath: /their/mount"},
	{"extraEnv", `[]`, `[{"name":"THEIR_NAME","value":"b"}]`, "name: THEIR_NAME"},
	{"initContainers", ``, `[{"name":"their-init","image":"b"}]`, "name: their-init"},
	{"kubeletPath", `"/var/lib/kubelet/pod-resources"`, `"/their/pod-resources"`, "path: /their/pod-resources"},
	{"tlsServerConfig.enabled", `false`, `true`, "tls_server_config:"},
	{"tlsServerConfig.autoGenerated", `true`, `true`, ""}, // existingSecret wins, as in dcgm-exporter's chart
	{"tlsServerConfig.existingSecret", `""`, `"their-cert"`, "secretName: their-cert"},
	{"tlsServerConfig.certFilename", `"tls.crt"`, `"their.crt"`, "cert_file: /etc/warpgauge/tls/their.crt"},
	{"tlsServerConfig.keyFilename", `"tls.key"`, `"their.key"`, "key_file: /etc/warpgauge/tls/their.key"},
	{"tlsServerConfig.caFilename", `"ca.crt"`, `"their.ca"`, "client_ca_file: /etc/warpgauge/tls/their.ca"},
	{"tlsServerConfig.clientAuthType", `""`, `"RequireAndVerifyClientCert"`, "client_auth_type: RequireAndVerifyClientCert"},
	{"tlsServerConfig.key", `""`, `"a"`, ""},
	{"tlsServerConfig.cert", `""`, `"a"`, ""},
	{"tlsServerConfig.ca", `""`, `"a"`, ""},
	{"basicAuth.users", `{}`, `{"their-user":"b"}`, `"their-user": "$2a$`},
	{"kubernetes.enablePodLabels", `false`, `true`, "--kubernetes-enable-pod-labels"},
	{"kubernetes.enablePodUID", `false`, `true`, "--kubernetes-enable-pod-uid"},
	{"kubernetes.podLabelAllowlistRegex", `[]`, `["^their$"]`, "--kubernetes-pod-label-allowlist-regex=^their$"},
	{"kubernetes.rbac.create", `true`, `true`, "kind: ClusterRoleBinding"},
	{"debugDump.enabled", `false`, `true`, ""},
	{"debugDump.directory", `"/tmp/dcgm-exporter-debug"`, `"/tmp/their-dumps"`, ""},
	{"debugDump.retention", `24`, `48`, ""},
	{"debugDump.compression", `true`, `false`, ""},
	{"kubernetesDRA.enabled", `false`, `true`, "--kubernetes-enable-dra"},
	{"customMetrics", ``, `"DCGM_FI_DEV_SM_CLOCK, gauge, Their clock."`, "Their clock."},
	{"livenessProbe.initialDelaySeconds", `45`, `46`, "initialDelaySeconds: 46"},
	{"livenessProbe.periodSeconds", `5`, `7`, "periodSeconds: 7"},
	{"livenessProbe.timeoutSeconds", ``, `4`, "timeoutSeconds: 4"},
	{"livenessProbe.failureThreshold", ``, `9`, "failureThreshold: 9"},
	{"readinessProbe.initialDelaySeconds", `45`, `47`, "initialDelaySeconds: 47"},
	{"readinessProbe.periodSeconds", ``, `8`, "periodSeconds: 8"},
	{"readinessProbe.timeoutSeconds", ``, `5`, "timeoutSeconds: 5"},
	{"readinessProbe.failureThreshold", ``, `11`, "failureThreshold: 11"},
}

// sets returns the arguments of template that set values by path.
func sets(values map[string]string) (out []string) {
	for path, value := range values {
		out = append(out, path+"="+value)
	}
	slices.Sort(out)
	return out
}

// TestMigrationFromTheirChart sets every value of dcgm-exporter's chart in one file and checks the rendered release.
func TestMigrationFromTheirChart(t *testing.T) {
	before, err := template(t, "")
	if err != nil {
		t.Fatalf("%v\n%s", err, before)
	}
	values := map[string]string{}
	for _, v := range theirs {
		values[v.path] = v.value
	}
	after, err := template(t, "", sets(values)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, after)
	}
	for _, v := range theirs {
		if v.shows != "" && (strings.Contains(string(before), v.shows) || !strings.Contains(string(after), v.shows)) {
			t.Errorf("%s=%s: %q is in the release without it, or not in the one with it", v.path, v.value, v.shows)
		}
	}
	o := decode(t, after)
	args := slices.Clone(container(t, o.daemonSets["nvidia"]).Args)
	at := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--config-file=") })
	path := filepath.Join(t.TempDir(), "list.yaml")
	must(t, os.WriteFile(path, []byte(o.configMaps["their-config"].Data["list.yaml"]), 0o600))
	args[at] = "--config-file=" + path
	if _, err := parse(t, args); err != nil {
		t.Errorf("the flags that come of it: %v", err)
	}
	if args := container(t, o.daemonSets["amd"]).Args; slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--config-file") }) {
		t.Errorf("AMD's pods get a configuration of DCGM's fields: %q", args)
	}
}

// TestTheirDefaults: given dcgm-exporter's whole values.yaml, the chart reports all unsupported values at once.
func TestTheirDefaults(t *testing.T) {
	values := map[string]string{}
	for _, v := range theirs {
		if v.def != "" {
			values[v.path] = v.def
		}
	}
	var file struct{ ServiceMonitor map[string]any }
	must(t, yaml.Unmarshal(read(t, "values/dcgm-exporter.yaml"), &file))
	delete(file.ServiceMonitor, "job") // the name of their Service, not a value
	for name, v := range file.ServiceMonitor {
		if b, err := json.Marshal(v); err != nil || string(b) != values["serviceMonitor."+name] {
			t.Errorf("values/dcgm-exporter.yaml has serviceMonitor.%s=%s, their default is %s", name, b, values["serviceMonitor."+name])
		}
	}
	out, err := template(t, "", sets(values)...)
	if err == nil {
		t.Fatal("their values.yaml is accepted, though it names their image and their ConfigMap")
	}
	var refused []string
	for _, m := range regexp.MustCompile(`(?m)^- ([A-Za-z.]+):`).FindAllSubmatch(out, -1) {
		refused = append(refused, string(m[1]))
	}
	if want := []string{"image.repository", "image.tag", "extraConfigMapVolumes"}; !slices.Equal(refused, want) {
		t.Errorf("refused %q, want %q:\n%s", refused, want, out)
	}
}

// TestNodes: the user's nodeSelector and affinity replace the chart's terms for NVIDIA, as in dcgm-exporter's chart,
// and keep AMD's pods off NVIDIA's nodes. In every case the pod leaves a node that the GPU Operator has paused. Two of
// its programs set these label values: the driver manager (https://github.com/NVIDIA/k8s-driver-manager,
// cmd/driver-manager/main.go, maybeSetPaused) and the MIG manager (https://github.com/NVIDIA/mig-parted, Stop).
func TestNodes(t *testing.T) {
	gpu, amd := `nvidia.com/gpu.present`, `amd.com/gpu.device-id`
	theirTerm := `{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"nvidia-gpu","operator":"Exists"}]}]}}}`
	rendered := map[string]*objects{}
	for _, c := range []struct {
		sets    []string
		vendor  string
		labels  map[string]string
		runs    bool
		because string
	}{
		{nil, "nvidia", map[string]string{gpu: "true"}, true, "it is labelled"},
		// https://learn.microsoft.com/azure/aks/use-labels and https://karpenter.sh/docs/concepts/scheduling/#well-known-labels
		{nil, "nvidia", map[string]string{"kubernetes.azure.com/accelerator": "nvidia"}, true, "AKS says so"},
		{nil, "nvidia", map[string]string{"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"}, true, "Karpenter says so"},
		{nil, "nvidia", map[string]string{"karpenter.k8s.aws/instance-gpu-manufacturer": "amd"}, false, "its GPUs are AMD's"},
		{nil, "nvidia", map[string]string{"pool": "gpu"}, false, "nothing says that it has GPUs"},
		{nil, "nvidia", map[string]string{gpu: "true", "nvidia.com/gpu.deploy.client": "true", "nvidia.com/gpu.deploy.dcgm-exporter": "false"}, true, "only the operator's exporter is off"},
		{nil, "nvidia", map[string]string{gpu: "true", "nvidia.com/gpu.deploy.dcgm-exporter": "paused-for-driver-upgrade"}, false, "the driver is replaced"},
		{nil, "nvidia", map[string]string{gpu: "true", "nvidia.com/gpu.deploy.client": "paused-for-mig-change"}, false, "MIG is changed"},
		{nil, "nvidia", map[string]string{gpu: "true", "nvidia.com/gpu.deploy.dcgm-exporter-dra": "paused-for-driver-upgrade"}, false, "the driver is replaced under claims"},
		{[]string{`nvidia.leaveWhenPaused=false`}, "nvidia", map[string]string{gpu: "true", "nvidia.com/gpu.deploy.client": "paused-for-mig-change"}, true, "the user wants it"},
		{[]string{`nodeSelector={"pool":"gpu"}`}, "nvidia", map[string]string{"pool": "gpu"}, true, "the user says so"},
		{[]string{`nodeSelector={"pool":"gpu"}`}, "nvidia", map[string]string{gpu: "true"}, false, "the user says others"},
		{[]string{`nodeSelector={"pool":"gpu"}`}, "nvidia", map[string]string{"pool": "gpu", "nvidia.com/gpu.deploy.client": "paused-for-driver-upgrade"}, false, "the driver is replaced"},
		{[]string{`nodeSelector={"pool":"gpu"}`}, "amd", map[string]string{"pool": "gpu"}, false, "nothing says that its GPUs are AMD's"},
		{[]string{`nodeSelector={"pool":"gpu"}`}, "amd", map[string]string{"pool": "gpu", amd: "74a1"}, true, "both match"},
		{[]string{`nodeSelector={"pool":"gpu"}`, `nvidia.enabled=false`}, "amd", map[string]string{"pool": "gpu"}, true, "there is one vendor, and the user says so"},
		{[]string{`affinity=` + theirTerm}, "nvidia", map[string]string{"nvidia-gpu": ""}, true, "the user says so"},
		{[]string{`affinity=` + theirTerm}, "nvidia", map[string]string{gpu: "true"}, false, "the user says others"},
		{[]string{`affinity=` + theirTerm}, "nvidia", map[string]string{"nvidia-gpu": "", "nvidia.com/gpu.deploy.client": "paused-for-driver-upgrade"}, false, "the driver is replaced"},
		{[]string{`affinity=` + theirTerm}, "amd", map[string]string{"nvidia-gpu": ""}, false, "nothing says that its GPUs are AMD's"},
		{[]string{`affinity=` + theirTerm}, "amd", map[string]string{amd: "74a1"}, true, "it is labelled"},
		{[]string{`nvidia.nodeSelectorTerms=[]`}, "nvidia", map[string]string{}, true, "every node is meant"},
	} {
		key := strings.Join(c.sets, " ")
		if rendered[key] == nil {
			rendered[key] = render(t, "", c.sets...)
		}
		spec := rendered[key].daemonSets[c.vendor].Spec.Template.Spec
		if runs := runsOn(t, spec, c.labels); runs != c.runs {
			t.Errorf("%q, %s: a pod on a node with %v: %v, want %v, as %s", c.sets, c.vendor, c.labels, runs, c.runs, c.because)
		}
	}
}

// runsOn reports whether the DaemonSet controller places the pod on a node with these labels.
func runsOn(t *testing.T, spec corev1.PodSpec, node labels.Set) bool {
	t.Helper()
	if !labels.SelectorFromSet(spec.NodeSelector).Matches(node) {
		return false
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		return len(term.MatchExpressions) > 0 && !slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			r, err := labels.NewRequirement(e.Key, selection.Operator(strings.ToLower(string(e.Operator))), e.Values)
			must(t, err)
			return !r.Matches(node)
		})
	})
}
