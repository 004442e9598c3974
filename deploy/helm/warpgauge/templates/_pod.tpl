{{/* The flags of a DaemonSet: only what differs from the exporter's own defaults. */}}
{{- define "warpgauge.args" -}}
{{- $v := .root.Values }}
- --enable-only={{ ternary "dcgm,nvml" "rocm" (eq .vendor "nvidia") }}
{{- with $v.service }}
{{- $address := .address | default (printf ":%v" .port) }}
{{- with $.config.port }}
{{- $address = regexReplaceAll ":[0-9]+$" $address (printf ":%v" .) }}
{{- end }}
{{- /* config.json may name a port, which the flag beats. */}}
{{- if or (ne $address ":9400") (include "warpgauge.amdConfigMap" $) }}
- --address={{ $address }}
{{- end }}
{{- end }}
{{- if include "warpgauge.csvConfigMap" . }}
- --collectors=/etc/warpgauge/counters/{{ include "warpgauge.csvKey" . }}
{{- else if ne .config.counters.preset "default" }}
- --collectors=/etc/warpgauge/{{ .config.counters.preset }}{{ if not (has .config.counters.preset (list "dcp-metrics-included" "1.x-compatibility-metrics")) }}-counters{{ end }}.csv
{{- end }}
{{- if include "warpgauge.yamlConfigMap" . }}
- --config-file=/etc/warpgauge/config/{{ $v.config.key }}
{{- end }}
{{- if include "warpgauge.amdConfigMap" . }}
- --amd-config=/etc/warpgauge/amd/{{ .config.config.key }}
{{- end }}
{{- with $v.collectInterval }}
- --collect-interval={{ . }}
{{- end }}
{{- with $v.collectorMemoryLimit }}
- --collector-memory-limit={{ . }}
{{- end }}
{{- with $v.logLevel }}
- --log-level={{ . }}
{{- end }}
{{- with $v.logFormat }}
- --log-format={{ . }}
{{- end }}
{{- with $v.hostnameLabel }}
- --hostname-label={{ . }}
{{- end }}
{{- if include "warpgauge.webSecret" .root }}
- --web-config-file=/etc/warpgauge/web/web-config.yaml
{{- end }}
{{- with $v.service.webReadTimeout }}
- --web-read-timeout={{ . }}
{{- end }}
{{- with $v.service.webWriteTimeout }}
- --web-write-timeout={{ . }}
{{- end }}
{{- with $v.kubernetes }}
{{- if .enabled }}
- --kubernetes
{{- if .enablePodLabels }}
- --kubernetes-enable-pod-labels
{{- range .podLabelAllowlistRegex }}
- {{ printf "--kubernetes-pod-label-allowlist-regex=%s" . | toJson }}
{{- end }}
{{- end }}
{{- if or .enablePodUID $v.accounts.enabled }}
- --kubernetes-enable-pod-uid
{{- end }}
{{- if .virtualGPUs }}
- --kubernetes-virtual-gpus
{{- end }}
{{- if or .processValues .virtualGPUs }}
- --process-values={{ .processValues }}
{{- end }}
{{- with .resourceNames }}
- --nvidia-resource-names={{ join "," . }}
{{- end }}
{{- if $v.kubernetesDRA.enabled }}
- --kubernetes-enable-dra
{{- end }}
{{- end }}
{{- end }}
{{- if $v.hpcJobMapping.enabled }}
- --hpc-job-mapping-dir={{ $v.hpcJobMapping.directory }}
{{- with $v.hpcJobMapping.labels }}
- --hpc-job-labels={{ join "," . }}
{{- end }}
{{- end }}
{{- if eq .vendor "nvidia" }}
{{- with $v.dcgm.remoteHostEngine }}
- --remote-hostengine-info={{ . }}
{{- end }}
{{- with .config.driverRoot }}
- --nvml-driver-root=/driver-root
{{- end }}
{{- end }}
{{- with $v.recorder }}
{{- if .enabled }}
- --recorder-directory=/var/lib/warpgauge/recordings
- --recorder-bytes={{ .bytes }}
{{- end }}
{{- end }}
- --health-directory=/var/lib/warpgauge-health{{ if not (include "warpgauge.healthPath" .) }}/state{{ end }}
{{- with $v.accounts }}
{{- if .enabled }}
- --accounts
- --account-directory=/var/lib/warpgauge-health/{{ if not (include "warpgauge.healthPath" $) }}state-{{ end }}accounts
{{- with .idleAfter }}
- --account-idle-after={{ . }}
{{- end }}
{{- if and .podEvents $v.kubernetes.enabled }}
- --account-pod-events
{{- end }}
{{- end }}
{{- end }}
{{- with $v.health }}
{{- with .rules }}
- {{ printf "--health-rules=%s" (join "," .) | toJson }}
{{- end }}
{{- if .kernelLog }}
- --kernel-log=/dev/kmsg
{{- end }}
{{- with .expectedGPUs }}
- --expected-gpus={{ . }}
{{- end }}
{{- if include "warpgauge.amdSocket" $ }}
- --health-amd-socket={{ trimSuffix "/" .amdSocket.hostPath }}/amdgpu_device_metrics_exporter_grpc.socket
{{- end }}
{{- if .nodeCondition }}
- --health-node-condition
{{- end }}
{{- if and .nodeLabels (eq $.vendor "amd") }}
- --health-node-labels
{{- end }}
{{- if .nodeEvents }}
- --health-node-events
{{- end }}
{{- end }}
{{- with $v.remote }}
{{- if include "warpgauge.remote" $.root }}
- --remote-config={{ .mode }}
- {{ printf "--remote-url=%s" (include "warpgauge.remoteURL" $.root) | toJson }}
- --remote-directory=/var/lib/warpgauge-remote{{ if not $v.remote.hostPath }}/state{{ end }}
{{- with .interval }}
- --remote-interval={{ . }}
{{- end }}
{{- with .allow }}
- --remote-allow={{ join "," . }}
{{- end }}
{{- $limits := list }}
{{- range $name, $value := .limits }}
{{- /* Helm writes large numbers with an exponent. */}}
{{- $limits = append $limits (printf "%s=%v" $name (has $name (list "fields" "series") | ternary (int64 $value) $value)) }}
{{- end }}
{{- with $limits }}
- --remote-limit={{ join "," . }}
{{- end }}
{{- range $name, $value := .nodeLabels }}
- {{ printf "--node-label=%s=%v" $name $value | toJson }}
{{- end }}
{{- if .tokenSecret.name }}
- --remote-token-file=/etc/warpgauge/remote-token/{{ .tokenSecret.key }}
{{- else if and (include "warpgauge.fleetAccounts" $.root) (not .url) }}
- --remote-token-file=/etc/warpgauge/remote-token/token
{{- end }}
{{- if .caSecret.name }}
- --remote-ca-file=/etc/warpgauge/remote-ca/{{ .caSecret.key }}
{{- end }}
{{- if .certSecret }}
- --remote-cert-file=/etc/warpgauge/remote-cert/tls.crt
- --remote-key-file=/etc/warpgauge/remote-cert/tls.key
{{- end }}
{{- end }}
{{- end }}
{{- range $v.arguments }}
- {{ . | toString | toJson }}
{{- end }}
{{- end }}

{{/* Mounts; everything that is the host's is read-only, but for directories of our own that a value names. */}}
{{- define "warpgauge.volumeMounts" -}}
{{- $v := .root.Values }}
{{- if $v.kubernetes.enabled }}
- { name: pod-gpu-resources, mountPath: /var/lib/kubelet/pod-resources, readOnly: true }
{{- end }}
{{- if $v.hpcJobMapping.enabled }}
- { name: hpc-job-mapping, mountPath: {{ $v.hpcJobMapping.directory }}, readOnly: true }
{{- end }}
{{- if include "warpgauge.csvConfigMap" . }}
- { name: counters, mountPath: /etc/warpgauge/counters, readOnly: true }
{{- end }}
{{- if include "warpgauge.yamlConfigMap" . }}
- { name: config, mountPath: /etc/warpgauge/config, readOnly: true }
{{- end }}
{{- if include "warpgauge.amdConfigMap" . }}
- { name: amd-config, mountPath: /etc/warpgauge/amd, readOnly: true }
{{- end }}
{{- if include "warpgauge.webSecret" .root }}
- { name: web-config, mountPath: /etc/warpgauge/web, readOnly: true }
{{- end }}
{{- if include "warpgauge.tls" .root }}
- { name: tls, mountPath: /etc/warpgauge/tls, readOnly: true }
{{- end }}
{{- if and (eq .vendor "nvidia") .config.driverRoot }}
- { name: driver-root, mountPath: /driver-root, readOnly: true, mountPropagation: HostToContainer }
{{- end }}
{{- if $v.recorder.enabled }}
- { name: recordings, mountPath: /var/lib/warpgauge }
{{- end }}
- { name: health, mountPath: /var/lib/warpgauge-health }
{{- if $v.health.kernelLog }}
- { name: kernel-log, mountPath: /dev/kmsg, readOnly: true }
{{- end }}
{{- if include "warpgauge.amdSocket" . }}
- { name: health-amd-socket, mountPath: {{ $v.health.amdSocket.hostPath }} }
{{- end }}
{{- if include "warpgauge.remote" .root }}
- { name: remote, mountPath: /var/lib/warpgauge-remote }
{{- if or $v.remote.tokenSecret.name (and (include "warpgauge.fleetAccounts" .root) (not $v.remote.url)) }}
- { name: remote-token, mountPath: /etc/warpgauge/remote-token, readOnly: true }
{{- end }}
{{- if $v.remote.caSecret.name }}
- { name: remote-ca, mountPath: /etc/warpgauge/remote-ca, readOnly: true }
{{- end }}
{{- if $v.remote.certSecret }}
- { name: remote-cert, mountPath: /etc/warpgauge/remote-cert, readOnly: true }
{{- end }}
{{- end }}
{{- with $v.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "warpgauge.volumes" -}}
{{- $v := .root.Values }}
{{- if $v.kubernetes.enabled }}
- name: pod-gpu-resources
  hostPath: { path: {{ $v.kubeletPath }}, type: Directory }
{{- end }}
{{- if $v.hpcJobMapping.enabled }}
- name: hpc-job-mapping
  hostPath: { path: {{ $v.hpcJobMapping.directory }}, type: DirectoryOrCreate }
{{- end }}
{{- with include "warpgauge.csvConfigMap" . }}
# As a directory: the kubelet never updates a file that is mounted by subPath.
- name: counters
  configMap: { name: {{ . }} }
{{- end }}
{{- with include "warpgauge.yamlConfigMap" . }}
- name: config
  configMap: { name: {{ . }} }
{{- end }}
{{- with include "warpgauge.amdConfigMap" . }}
- name: amd-config
  configMap: { name: {{ . }} }
{{- end }}
{{- with include "warpgauge.webSecret" .root }}
- name: web-config
  secret: { secretName: {{ . }}, defaultMode: 0440 }
{{- end }}
{{- if include "warpgauge.tls" .root }}
- name: tls
  secret: { secretName: {{ required "tlsServerConfig.existingSecret names the secret with certificate and key" $v.tlsServerConfig.existingSecret }}, defaultMode: 0440 }
{{- end }}
{{- if and (eq .vendor "nvidia") .config.driverRoot }}
- name: driver-root
  hostPath: { path: {{ .config.driverRoot }}, type: Directory }
{{- end }}
{{- with $v.recorder }}
{{- if .enabled }}
- name: recordings
{{- if .hostPath }}
  hostPath: { path: {{ .hostPath }}, type: DirectoryOrCreate }
{{- else }}
  emptyDir: {}
{{- end }}
{{- end }}
{{- end }}
- name: health
{{- with include "warpgauge.healthPath" . }}
  hostPath: { path: {{ . }}, type: DirectoryOrCreate }
{{- else }}
  emptyDir: { sizeLimit: 64Mi }
{{- end }}
{{- if $v.health.kernelLog }}
- name: kernel-log
  hostPath: { path: /dev/kmsg, type: CharDevice }
{{- end }}
{{- if include "warpgauge.amdSocket" . }}
- name: health-amd-socket
  hostPath: { path: {{ $v.health.amdSocket.hostPath }}, type: DirectoryOrCreate }
{{- end }}
{{- if include "warpgauge.remote" .root }}
- name: remote
{{- with $v.remote.hostPath }}
  hostPath: { path: {{ include "warpgauge.hostDirectory" (dict "hostPath" . "vendor" $.vendor) }}, type: DirectoryOrCreate }
{{- else }}
  emptyDir: { sizeLimit: 64Mi }
{{- end }}
{{- if $v.remote.tokenSecret.name }}
- name: remote-token
  secret: { secretName: {{ $v.remote.tokenSecret.name }}, defaultMode: 0440 }
{{- else if and (include "warpgauge.fleetAccounts" .root) (not $v.remote.url) }}
- name: remote-token
  projected:
    sources: [{ serviceAccountToken: { audience: warpgauge-fleet, path: token, expirationSeconds: 3600 } }]
{{- end }}
{{- with $v.remote.caSecret.name }}
- name: remote-ca
  secret: { secretName: {{ . }}, defaultMode: 0440 }
{{- end }}
{{- with $v.remote.certSecret }}
- name: remote-cert
  secret: { secretName: {{ . }}, defaultMode: 0440 }
{{- end }}
{{- end }}
{{- range $v.extraHostVolumes }}
- name: {{ .name }}
  hostPath: { path: {{ .hostPath }} }
{{- end }}
{{- with $v.extraConfigMapVolumes }}
{{ toYaml . }}
{{- end }}
{{- with $v.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* nodeSelector and affinity. Both values are of dcgm-exporter's chart, so next to NVIDIA's
     DaemonSet they are about NVIDIA's nodes, and AMD's has its own terms in any case. */}}
{{- define "warpgauge.placement" -}}
{{- $v := .root.Values }}
{{- $alone := or (eq .vendor "nvidia") (not $v.nvidia.enabled) }}
{{- $affinity := deepCopy $v.affinity }}
{{- $terms := .config.nodeSelectorTerms }}
{{- if and $alone (or $v.nodeSelector $v.affinity) }}
{{- $terms = dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" list $affinity }}
{{- end }}
{{- if and (eq .vendor "nvidia") .config.leaveWhenPaused }}
{{- $here := list }}
{{- range list "client" "dcgm-exporter" "dcgm-exporter-dra" }}
{{- $paused := list "paused-for-driver-upgrade" "paused-for-mig-change" }}
{{- $here = append $here (dict "key" (printf "nvidia.com/gpu.deploy.%s" .) "operator" "NotIn" "values" $paused) }}
{{- end }}
{{- $all := list }}
{{- range $terms | default (list dict) }}
{{- $all = append $all (merge (dict "matchExpressions" (concat (.matchExpressions | default list) $here)) .) }}
{{- end }}
{{- $terms = $all }}
{{- end }}
{{- with $v.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $terms }}
{{- $required := dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) }}
{{- $affinity = mergeOverwrite $affinity (dict "nodeAffinity" $required) }}
{{- end }}
{{- with $affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* "true" if labels of a node match what warpgauge.placement has made: the DaemonSet controller's judgement but for taints. */}}
{{- define "warpgauge.matches" -}}
{{- $labels := .labels }}
{{- $matches := true }}
{{- range $key, $value := .placement.nodeSelector }}
{{- if ne (get $labels $key) $value }}{{ $matches = false }}{{ end }}
{{- end }}
{{- $terms := dig "affinity" "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" list .placement }}
{{- $one := empty $terms }}
{{- range $terms }}
{{- $all := true }}
{{- range .matchExpressions }}
{{- $has := hasKey $labels .key }}
{{- $in := and $has (has (get $labels .key) (.values | default list)) }}
{{- if or (and (eq .operator "In") (not $in)) (and (eq .operator "NotIn") $in) (and (eq .operator "Exists") (not $has)) (and (eq .operator "DoesNotExist") $has) }}{{ $all = false }}{{ end }}
{{- end }}
{{- if $all }}{{ $one = true }}{{ end }}
{{- end }}
{{- if and $matches $one }}true{{ end }}
{{- end }}

{{/* The first taint of a node that keeps a DaemonSet's pods away, as KEY=VALUE:EFFECT. Those of node.kubernetes.io they tolerate by themselves. */}}
{{- define "warpgauge.keptAway" -}}
{{- $tolerations := .tolerations }}
{{- $first := "" }}
{{- range .taints }}
{{- $taint := . }}
{{- $away := and (ne .effect "PreferNoSchedule") (not (hasPrefix "node.kubernetes.io/" .key)) }}
{{- range $tolerations }}
{{- $key := or (eq (.key | default "") $taint.key) (and (not .key) (eq .operator "Exists")) }}
{{- $value := or (eq (.operator | default "Equal") "Exists") (eq (.value | default "") ($taint.value | default "")) }}
{{- if and $key $value (or (not .effect) (eq .effect $taint.effect)) }}{{ $away = false }}{{ end }}
{{- end }}
{{- if and $away (not $first) }}{{ $first = printf "%s=%s:%s" .key (.value | default "") .effect }}{{ end }}
{{- end }}
{{- $first }}
{{- end }}

{{/* As tight as the features allow; podSecurityContext and securityContext are merged over it. */}}
{{- define "warpgauge.podSecurityContext" -}}
{{- $out := dict "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- if not (include "warpgauge.needsRoot" .) }}
{{- $_ := set $out "runAsNonRoot" true }}
{{- $_ := set $out "fsGroup" 65532 }}
{{- end }}
{{- if .root.Values.openshift.seLinuxOptions }}
{{- $_ := set $out "seLinuxOptions" .root.Values.openshift.seLinuxOptions }}
{{- end }}
{{- toYaml (mergeOverwrite $out (deepCopy .root.Values.podSecurityContext)) }}
{{- end }}

{{- define "warpgauge.securityContext" -}}
{{- $root := eq (include "warpgauge.needsRoot" .) "true" }}
{{- $id := ternary 0 65532 $root }}
{{- $out := dict "readOnlyRootFilesystem" true "runAsUser" $id "runAsGroup" $id "runAsNonRoot" (not $root) }}
{{- if include "warpgauge.privileged" . }}
{{- $_ := set $out "privileged" true }}
{{- else }}
{{- $_ := set $out "allowPrivilegeEscalation" false }}
{{- $capabilities := dict "drop" (list "ALL") }}
{{- if include "warpgauge.sysAdmin" . }}
{{- $_ := set $capabilities "add" (list "SYS_ADMIN") }}
{{- end }}
{{- $_ := set $out "capabilities" $capabilities }}
{{- end }}
{{- toYaml (mergeOverwrite $out (deepCopy .root.Values.securityContext)) }}
{{- end }}
