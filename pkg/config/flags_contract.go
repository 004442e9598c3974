package config

import (
	"slices"
	"time"
)

// Flags that are named more than once.
const (
	flagKubernetes = "kubernetes"
	flagJobs       = "hpc-job-mapping-dir"
	flagPodLabels  = "kubernetes-enable-pod-labels"
	flagConfigFile = "config-file"
)

// Reasons of several flags.
const (
	noKeep = "only the newest value of a field is read from DCGM, so it keeps two intervals' worth"
	noDump = "the JSON API and warpctl doctor show what the exporter knows while it runs"
)

// This file holds dcgm-exporter's flags, up to 4.9, with its names, aliases and variables.

// contractIdle lists dcgm-exporter's flags that have no effect in warpgauge.
func contractIdle() []Flag {
	return []Flag{
		Idle("watch-max-keep-age", "DCGM_EXPORTER_WATCH_MAX_KEEP_AGE", Duration(new(10*time.Minute)), noKeep),
		Idle("watch-max-keep-samples", "DCGM_EXPORTER_WATCH_MAX_KEEP_SAMPLES", Int(new(0)), noKeep),
		Idle("enable-gpu-bind-unbind-watch", "DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH", Bool(new(false)), "devices that come and go are always found, see --rescan-interval"),
		Idle("gpu-bind-unbind-poll-interval", "DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL", Text(new("1s")), "use --rescan-interval"),
		Idle("disable-startup-validate", "DISABLE_STARTUP_VALIDATE", Bool(new(false)), "missing libraries and drivers never prevent the start; it tries again and again"),
		Idle("kubernetes-gpu-id-type", "DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE", OneOf(new("uid"), "uid", "device-name"), "an id says by its form which device it names, so both kinds are found; another value is refused at start"),
		Idle("dump-enabled", "DCGM_EXPORTER_DUMP_ENABLED", Bool(new(false)), noDump),
		Idle("dump-directory", "DCGM_EXPORTER_DUMP_DIRECTORY", Text(new("/tmp/dcgm-exporter-debug")), noDump),
		Idle("dump-retention", "DCGM_EXPORTER_DUMP_RETENTION", Int(new(24)), noDump),
		Idle("dump-compression", "DCGM_EXPORTER_DUMP_COMPRESSION", Bool(new(true)), noDump),
		Idle("container-labels", "DCGM_EXPORTER_CONTAINER_LABELS", Bool(new(false)), "containers are known in Kubernetes only, from the kubelet"),
		Idle("container-runtime-socket", "DCGM_CONTAINER_RUNTIME_SOCKET", Text(new("")), "containers are known in Kubernetes only, from the kubelet"),
	}
}

func contractFields(c *Config) []Flag {
	return slices.Concat(in(GroupFields,
		Flag{Name: "collectors", Common: true, Aliases: []string{"f"}, Env: "DCGM_EXPORTER_COLLECTORS", Value: Text(&c.Collectors), Metavar: "FILE",
			Usage:        "Counters CSV: field, type, help and, if wanted, options on each line.",
			ShownDefault: contractCounters + ", else " + ownCounters + ", else the list built in",
			Differs:      "without the flag a missing default file is not an error: the list built in is used"},
		Flag{Name: "configmap-data", Aliases: []string{"m"}, Env: "DCGM_EXPORTER_CONFIGMAP_DATA", Value: configMapName(&c.ConfigMap), Metavar: "NAMESPACE:NAME",
			Usage: "ConfigMap whose key metrics holds the counters CSV; it is read through the API server at start and at each reload, and beats the CSV file."},
		Flag{Name: flagConfigFile, Env: "DCGM_EXPORTER_CONFIG_FILE", ParentOnly: true, Value: Text(&c.ConfigFile), Metavar: "FILE",
			Usage:   "YAML configuration of dcgm-exporter 4.8.3 and later, version 1 or 2. Flags and variables beat it. The list and its intervals are read again at each reload, the rest at start.",
			Differs: "dcgm-exporter reads it at start only"},
	), in(GroupSampling,
		Flag{Name: "collect-interval", Common: true, Aliases: []string{"c"}, Env: "DCGM_EXPORTER_INTERVAL", Value: millis(&c.Interval), Metavar: "MS",
			Usage:   "Time between two samples, in milliseconds, at least 10. Slow and static fields are read less often.",
			Differs: "dcgm-exporter's default is 30000"},
	))
}

func contractDevices(c *Config) []Flag {
	const grammar = " f: parts where they exist, plus the fields of the whole that they lack; otherwise wholes; g or g:0,2-4: wholes; i or i:LIST: parts; g:0+i:1: both."
	const missing = "an id that does not exist is a warning, since a device may appear later"
	return in(GroupCollectors,
		Flag{Name: "devices", Common: true, Aliases: []string{"d"}, Env: "DCGM_EXPORTER_DEVICES_STR", Value: selector(&c.GPUs), Metavar: "SELECTOR",
			Usage:   "GPUs (wholes) and MIG instances (parts) to report." + grammar,
			Differs: missing},
		Flag{Name: "switch-devices", Aliases: []string{"s"}, Env: "DCGM_EXPORTER_OTHER_DEVICES_STR", Value: selector(&c.Switches), Metavar: "SELECTOR",
			Usage:   "NVSwitches (wholes) and their links (parts) to report; f: all of both. Written as for --devices.",
			Differs: missing},
		Flag{Name: "cpu-devices", Aliases: []string{"p"}, Env: "DCGM_EXPORTER_CPU_DEVICES_STR", Value: selector(&c.CPUs), Metavar: "SELECTOR",
			Usage:   "CPUs (wholes) and cores (parts) to report; f: all of both. Written as for --devices.",
			Differs: missing},
		Flag{Name: "remote-hostengine-info", Common: true, Aliases: []string{"r"}, Env: "DCGM_REMOTE_HOSTENGINE_INFO", Value: Text(&c.HostEngine.Address), Metavar: "HOST:PORT",
			Usage:   "DCGM host engine to use instead of an embedded one: host:port, [IPv6]:port, the path of a Unix socket, or a URL tcp://, unix://, vsock://. Outside Kubernetes its host is the value of the hostname label.",
			Differs: "an engine on this machine does not give the hostname label its name (\"localhost\")"},
		Flag{Name: "fake-gpus", Env: "DCGM_EXPORTER_USE_FAKE_GPUS", Value: Bool(&c.AcceptFakeGPUs),
			Usage: "Accept GPUs that were injected into DCGM for tests; --enable-fake simulates GPUs without DCGM."},
	)
}

func contractPage(c *Config) []Flag {
	return in(GroupPage,
		Flag{Name: "no-hostname", Aliases: []string{"n"}, Env: "DCGM_EXPORTER_NO_HOSTNAME", Value: Bool(&c.NoHostname),
			Usage: "Leave the hostname label out."},
		Flag{Name: "use-old-namespace", Aliases: []string{"o"}, Env: "DCGM_EXPORTER_USE_OLD_NAMESPACE", Value: Bool(&c.OldNamespace),
			Usage: "Labels of dcgm-exporter 1.x: uuid, pod_name, pod_namespace, container_name."},
		Flag{Name: "replace-blanks-in-model-name", Aliases: []string{"rbmn"}, Env: "DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME", Value: Bool(&c.ReplaceBlanks),
			Usage: "Write - for each blank in the modelName label."},
		Flag{Name: "xid-count-window-size", Aliases: []string{"x"}, Env: "DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE", Value: millis(&c.XIDWindow), Metavar: "MS",
			Usage:   "Window of DCGM_EXP_XID_ERRORS_COUNT, in milliseconds.",
			Differs: "counts events, not samples"},
		Flag{Name: "clock-events-count-window-size", Env: "DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE", Value: millis(&c.ClockEventWindow), Metavar: "MS",
			Usage: "Window of DCGM_EXP_CLOCK_EVENTS_COUNT, in milliseconds."},
		Flag{Name: "enable-exporter-metrics", Env: "DCGM_EXPORTER_ENABLE_EXPORTER_METRICS", Value: Bool(&c.allMetrics),
			Usage:        "true is the same as --exporter-metrics=full, false as none.",
			ShownDefault: "set by --exporter-metrics",
			Differs:      "without it, the few metrics that alerts need are on the page"},
	)
}

func contractWeb(c *Config) []Flag {
	return in(GroupWeb,
		Flag{Name: "address", Common: true, Aliases: []string{"a"}, Env: "DCGM_EXPORTER_LISTEN", Value: Text(&c.Web.Address), Metavar: "HOST:PORT",
			Usage: "Address to listen on; [IPV6]:PORT for IPv6."},
		Flag{Name: "web-config-file", Common: true, Env: "DCGM_EXPORTER_WEB_CONFIG_FILE", Value: Text(&c.Web.ConfigFile), Metavar: "FILE",
			Usage: "TLS and basic authentication, as the Prometheus exporter-toolkit describes them."},
		Flag{Name: "web-systemd-socket", Env: "DCGM_EXPORTER_SYSTEMD_SOCKET", Value: Bool(&c.Web.SystemdSocket),
			Usage: "Listen on the sockets that systemd passes instead of --address."},
		Flag{Name: "web-read-timeout", Env: "DCGM_EXPORTER_WEB_READ_TIMEOUT", Value: Duration(&c.Web.ReadTimeout), Metavar: "DURATION",
			Usage: "Longest time to read a request."},
		Flag{Name: "web-write-timeout", Env: "DCGM_EXPORTER_WEB_WRITE_TIMEOUT", Value: Duration(&c.Web.WriteTimeout), Metavar: "DURATION",
			Usage: "Longest time to write an answer."},
		Flag{Name: "max-concurrent-scrapes", Env: "DCGM_EXPORTER_MAX_CONCURRENT_SCRAPES", Value: Int(&c.Web.MaxConcurrentScrapes), Metavar: "N",
			Usage:   "Maximum number of scrapes at a time, further ones get 503; 0 for no limit.",
			Differs: "dcgm-exporter's default is 16; here scrapes share one page that is ready in memory"},
		Flag{Name: "enable-pprof", Env: "DCGM_EXPORTER_ENABLE_PPROF", Value: Bool(&c.Web.Pprof),
			Usage: "Serve Go profiles under /debug/pprof/."},
		Flag{Name: "health-require-gpus", Env: "DCGM_EXPORTER_HEALTH_REQUIRE_GPUS", Value: Bool(&c.Web.HealthRequireGPUs),
			Usage: "/health answers 503 while no GPU is up. For probes that know no /readyz; see --require."},
	)
}

func contractOwners(c *Config) []Flag {
	k := &c.Kubernetes
	return in(GroupOwners,
		Flag{Name: flagKubernetes, Common: true, Aliases: []string{"k"}, Env: "DCGM_EXPORTER_KUBERNETES", Value: Bool(&k.Enabled),
			Usage:   "Map devices to pods, as the kubelet lists them: labels namespace, pod, container.",
			Differs: "a GPU that several pods share gets no pod labels, unless --kubernetes-virtual-gpus is set; dcgm-exporter shows the last of them"},
		Flag{Name: flagPodLabels, Env: "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", Needs: flagKubernetes, Value: Bool(&k.PodLabels),
			Usage: "Add the labels of the pod, from the API server (needs a service account that may watch pods)."},
		Flag{Name: "kubernetes-enable-pod-uid", Env: "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", Needs: flagKubernetes, Value: Bool(&k.PodUID),
			Usage: "Add the label pod_uid, from the API server."},
		Flag{Name: "kubernetes-pod-label-allowlist-regex", Env: "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", Needs: flagPodLabels, Value: patterns{&k.LabelAllow}, Metavar: "REGEX,…",
			Usage:   "Regular expressions for the names of the pod labels to add. An expression may match any part of a name; may be repeated. None: all labels.",
			Differs: "an invalid expression is refused at start"},
		Flag{Name: "kubernetes-virtual-gpus", Env: "KUBERNETES_VIRTUAL_GPUS", Needs: flagKubernetes, Value: Bool(&k.VirtualGPUs),
			Usage: "Show each series of a shared GPU once per container, with the label vgpu if the device plugin numbers the shares."},
		Flag{Name: "kubernetes-enable-dra", Env: "KUBERNETES_ENABLE_DRA", Needs: flagKubernetes, Value: Bool(&k.DRA),
			Usage: "Map devices of dynamic resource allocation, which the API server's ResourceSlices describe."},
		Flag{Name: "pod-resources-kubelet-socket", Env: "DCGM_POD_RESOURCES_KUBELET_SOCKET", Needs: flagKubernetes, Value: Text(&k.Socket), Metavar: "PATH",
			Usage: "The kubelet's pod-resources socket."},
		Flag{Name: "nvidia-resource-names", Env: "NVIDIA_RESOURCE_NAMES", Needs: flagKubernetes, Value: List(&k.ResourceNames), Metavar: "NAME,…",
			Usage: "Further extended resources that are GPUs; may be repeated."},
		Flag{Name: flagJobs, Common: true, Env: "DCGM_HPC_JOB_MAPPING_DIR", Value: Text(&c.HPCJobDir), Metavar: "DIR",
			Usage: "Directory of files that name the jobs of each device: label hpc_job."},
	)
}

func contractDiagnosis(c *Config) []Flag {
	return in(GroupLogging,
		Flag{Name: "debug", Env: "DCGM_EXPORTER_DEBUG", Value: Bool(&c.Log.Debug),
			Usage: "The same as --log-level=debug."},
		Flag{Name: "log-format", Env: "DCGM_EXPORTER_LOG_FORMAT", Value: OneOf(&c.Log.Format, LogText, LogJSON), Metavar: "FORMAT",
			Usage: "text or json, on standard error."},
		Flag{Name: "enable-dcgm-log", Env: "DCGM_EXPORTER_ENABLE_DCGM_LOG", Value: Bool(&c.HostEngine.Log),
			Usage: "Write the log of an embedded host engine to standard error."},
		Flag{Name: "dcgm-log-level", Env: "DCGM_EXPORTER_DCGM_LOG_LEVEL", Value: oneOf(&c.HostEngine.LogLevel, true, "NONE", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "VERB"), Metavar: "LEVEL",
			Usage: "Level of DCGM's log."},
	)
}
