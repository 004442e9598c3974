{{/* Names, as helm create makes them: objects are found by people who know that. */}}
{{- define "warpgauge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "warpgauge.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 56 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 56 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 56 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "warpgauge.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "warpgauge.selectorLabels" -}}
app.kubernetes.io/name: {{ include "warpgauge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "warpgauge.labels" -}}
{{ include "warpgauge.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "warpgauge.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "warpgauge.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "warpgauge.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The image of a DaemonSet. Only NVIDIA's has a variant. */}}
{{- define "warpgauge.vendorImage" -}}
{{- include "warpgauge.image" .root }}
{{- if eq .vendor "nvidia" }}{{ with .root.Values.image.variant }}-{{ . }}{{ end }}{{ end }}
{{- end }}

{{- define "warpgauge.port" -}}
{{- .config.port | default .root.Values.service.port }}
{{- end }}

{{/* What a feature costs. Each is "true" or empty. */}}

{{- define "warpgauge.readsPods" -}}
{{- with .Values.kubernetes }}
{{- /* Values per process need the uids of pods. */}}
{{- if and .enabled (or .enablePodLabels .enablePodUID .processValues $.Values.accounts.enabled) }}true{{ end }}
{{- end }}
{{- end }}

{{- define "warpgauge.readsSlices" -}}
{{- if and .Values.kubernetes.enabled .Values.kubernetesDRA.enabled }}true{{ end }}
{{- end }}

{{- define "warpgauge.needsAPI" -}}
{{- $health := .Values.health }}
{{- if or (include "warpgauge.readsPods" .) (include "warpgauge.readsSlices" .) (include "warpgauge.listConfigMap" .) $health.nodeCondition $health.nodeLabels $health.nodeEvents }}true{{ end }}
{{- end }}

{{/* Lists come from a server. YAML reads a bare off as false. */}}
{{- define "warpgauge.remote" -}}
{{- if not (has (toString .Values.remote.mode) (list "off" "false" "")) }}true{{ end }}
{{- end }}

{{- define "warpgauge.remoteURL" -}}
{{- $scheme := ternary "opamp+https" "opamp+http" (not (empty .Values.fleet.tlsSecret)) }}
{{- .Values.remote.url | default (.Values.fleet.enabled | ternary (printf "%s://%s-fleet.%s.svc:4320/v1/opamp" $scheme (include "warpgauge.fullname" .) (include "warpgauge.namespace" .)) "") }}
{{- end }}

{{/* Agents show the server of this release the token of their service account. */}}
{{- define "warpgauge.fleetAccounts" -}}
{{- if and .Values.fleet.enabled (not .Values.fleet.agentsTokenSecret.name) (not .Values.fleet.clientCA) }}true{{ end }}
{{- end }}

{{- define "warpgauge.fleetSelectorLabels" -}}
app.kubernetes.io/name: {{ include "warpgauge.name" . }}-fleet
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "warpgauge.fleetLabels" -}}
{{ include "warpgauge.fleetSelectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The host path of a directory in which each vendor's pods have their own. */}}
{{- define "warpgauge.hostDirectory" -}}
{{ trimSuffix "/" .hostPath }}/{{ .vendor }}
{{- end }}

{{/* The node's directory for verdicts; other users than root cannot use it. An emptyDir belongs to root, and all may write to it:
there the exporter makes a directory of its own. */}}
{{- define "warpgauge.healthPath" -}}
{{- if and .root.Values.health.hostPath (include "warpgauge.needsRoot" .) }}
{{- include "warpgauge.hostDirectory" (dict "hostPath" .root.Values.health.hostPath "vendor" .vendor) }}
{{- end }}
{{- end }}

{{/* NAMESPACE:NAME of the ConfigMap that flags or environment name with -m; flags beat it. */}}
{{- define "warpgauge.listConfigMap" -}}
{{- $found := "" }}
{{- range concat .Values.extraEnv .Values.nvidia.extraEnv .Values.amd.extraEnv }}
{{- if eq .name "DCGM_EXPORTER_CONFIGMAP_DATA" }}{{ $found = .value }}{{ end }}
{{- end }}
{{- $next := false }}
{{- range .Values.arguments }}
{{- $argument := toString . }}
{{- if $next }}{{ $found = $argument }}{{ end }}
{{- $next = has $argument (list "-m" "--configmap-data") }}
{{- if regexMatch "^(-m|--configmap-data)=" $argument }}{{ $found = regexReplaceAll "^[^=]*=" $argument "" }}{{ end }}
{{- end }}
{{- if and $found (ne $found "none") }}{{ $found }}{{ end }}
{{- end }}

{{/* DCGM in one of its two forms, which needs an image that has its library: what asks for it. */}}
{{- define "warpgauge.dcgm" -}}
{{- $asks := list }}
{{- with .Values.dcgm }}
{{- if .remoteHostEngine }}{{ $asks = append $asks "dcgm.remoteHostEngine" }}{{ end }}
{{- if .embeddedProfiling }}{{ $asks = append $asks "dcgm.embeddedProfiling" }}{{ end }}
{{- end }}
{{- range concat .Values.extraEnv .Values.nvidia.extraEnv }}
{{- if eq .name "DCGM_REMOTE_HOSTENGINE_INFO" }}{{ $asks = append $asks "DCGM_REMOTE_HOSTENGINE_INFO" }}{{ end }}
{{- end }}
{{- if .Values.nvidia.enabled }}{{ join " and " $asks }}{{ end }}
{{- end }}

{{/* The address at which the pod of helm test finds the exporter, if it can ask there. */}}
{{- define "warpgauge.testURL" -}}
{{- $v := .Values }}
{{- if and $v.test.enabled $v.service.enable (not (or $v.webConfigSecret $v.basicAuth.users (and $v.tlsServerConfig.enabled $v.tlsServerConfig.clientAuthType))) -}}
http{{ if $v.tlsServerConfig.enabled }}s{{ end }}://{{ include "warpgauge.fullname" . }}.{{ include "warpgauge.namespace" . }}:{{ $v.service.port }}
{{- end }}
{{- end }}

{{- define "warpgauge.token" -}}
{{- $set := .Values.serviceAccount.automountServiceAccountToken }}
{{- if kindIs "bool" $set }}{{ $set }}{{ else }}{{ eq (include "warpgauge.needsAPI" .) "true" }}{{ end }}
{{- end }}

{{- define "warpgauge.hostPID" -}}
{{- if or .Values.hostPID (and .Values.kubernetes.enabled (or .Values.kubernetes.processValues .Values.accounts.enabled)) }}true{{ end }}
{{- end }}

{{/* The kubelet's socket is root's; a capability is root's in a container. */}}
{{- define "warpgauge.needsRoot" -}}
{{- if or .root.Values.kubernetes.enabled (include "warpgauge.sysAdmin" .) (include "warpgauge.privileged" .) (include "warpgauge.amdSocket" .) }}true{{ end }}
{{- end }}

{{- define "warpgauge.amdSocket" -}}
{{- if and (eq .vendor "amd") .root.Values.health.amdSocket.hostPath }}true{{ end }}
{{- end }}

{{- define "warpgauge.sysAdmin" -}}
{{- if and (eq .vendor "nvidia") (or .root.Values.dcgm.embeddedProfiling .config.migMonitor) }}true{{ end }}
{{- end }}

{{/* No other container may open /dev/kmsg, whatever capabilities it has: the runtime's rules for devices. */}}
{{- define "warpgauge.privileged" -}}
{{- if or .config.privileged .root.Values.health.kernelLog }}true{{ end }}
{{- end }}

{{- define "warpgauge.tls" -}}
{{- if and .Values.tlsServerConfig.enabled (not .Values.webConfigSecret) }}true{{ end }}
{{- end }}

{{- define "warpgauge.webSecret" -}}
{{- if .Values.webConfigSecret }}{{ .Values.webConfigSecret }}
{{- else if or .Values.tlsServerConfig.enabled .Values.basicAuth.users }}{{ include "warpgauge.fullname" . }}-web
{{- end }}
{{- end }}

{{/* The list of a DaemonSet as CSV text, if it is not a file of the image. */}}
{{- define "warpgauge.csv" -}}
{{- if .config.counters.csv }}{{ .config.counters.csv }}{{ else if eq .vendor "nvidia" }}{{ .root.Values.customMetrics }}{{ end }}
{{- end }}

{{- define "warpgauge.csvConfigMap" -}}
{{- if .config.counters.configMap.name }}{{ .config.counters.configMap.name }}
{{- else if include "warpgauge.csv" . }}{{ include "warpgauge.fullname" .root }}-{{ .vendor }}-counters
{{- end }}
{{- end }}

{{/* The YAML configuration, which is about fields of DCGM: AMD's pods have none. */}}
{{- define "warpgauge.yamlConfigMap" -}}
{{- with .root.Values.config }}
{{- if and .enabled (eq $.vendor "nvidia") }}{{ .name | default (printf "%s-config" (include "warpgauge.fullname" $.root)) }}{{ end }}
{{- end }}
{{- end }}

{{/* The configuration of AMD's exporter, for AMD's pods. */}}
{{- define "warpgauge.amdConfigMap" -}}
{{- if eq .vendor "amd" }}{{ .config.config.name }}{{ end }}
{{- end }}

{{- define "warpgauge.yamlConfig" -}}
{{- with .Values.config.data }}{{ if kindIs "map" . }}{{ toYaml . }}{{ else }}{{ . }}{{ end }}{{ end }}
{{- end }}

{{- define "warpgauge.csvKey" -}}
{{- if .config.counters.configMap.name }}{{ .config.counters.configMap.key }}{{ else }}counters.csv{{ end }}
{{- end }}

{{/* How to ask a probe's question: kubelet has no password and no certificate. */}}
{{- define "warpgauge.probe" -}}
{{- $v := .root.Values -}}
{{- if or $v.webConfigSecret $v.basicAuth.users (and $v.tlsServerConfig.enabled $v.tlsServerConfig.clientAuthType) -}}
tcpSocket: { port: metrics{{ with .probe.host }}, host: {{ . | quote }}{{ end }} }
{{- else -}}
httpGet: { path: {{ .probe.path }}, port: metrics{{ if $v.tlsServerConfig.enabled }}, scheme: HTTPS{{ end }}{{ with .probe.host }}, host: {{ . | quote }}{{ end }} }
{{- end }}
initialDelaySeconds: {{ .probe.initialDelaySeconds }}
periodSeconds: {{ .probe.periodSeconds }}
timeoutSeconds: {{ .probe.timeoutSeconds }}
failureThreshold: {{ .probe.failureThreshold }}
{{- end }}

{{/* What ServiceMonitor and PodMonitor say of an endpoint alike. */}}
{{- define "warpgauge.endpoint" -}}
port: metrics
path: /metrics
interval: {{ .monitor.interval }}
scrapeTimeout: {{ .monitor.scrapeTimeout }}
honorLabels: {{ .monitor.honorLabels }}
{{- if .root.Values.tlsServerConfig.enabled }}
scheme: https
{{- end }}
{{- with .monitor.tlsConfig }}
tlsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .monitor.basicAuth }}
basicAuth: {{- toYaml . | nindent 2 }}
{{- end }}
{{- $relabelings := .monitor.relabelings }}
{{- with .monitor.job }}
{{- $relabelings = append $relabelings (dict "targetLabel" "job" "replacement" .) }}
{{- end }}
{{- with $relabelings }}
relabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .monitor.metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
