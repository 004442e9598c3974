package config

import (
	"slices"
	"strings"

	"warpgauge/pkg/field"
)

// This file holds the flags that dcgm-exporter does not have.

func ownSampling(c *Config) []Flag {
	return slices.Concat(in(GroupFields,
		Flag{Name: "strict", Value: Bool(&c.Strict),
			Usage: "A field in the CSV that the catalogue does not know is an error, not a warning."},
		Flag{Name: "field-names", Value: OneOf(&c.FieldNames, field.AllNames()...), Metavar: "MODE",
			Usage: "Metric names to use. as-written: the names in the list; old: the names of dcgm-exporter 4.8 and before; new: the names and units of 4.9; both: the written, the old and the new name, from one reading. A line of the list can choose with names=MODE."},
	), in(GroupSampling,
		Flag{Name: "slow-interval", Value: Duration(&c.SlowInterval), Metavar: "DURATION",
			Usage: "Time between two samples of slow fields (ECC, remapped rows, retired pages) without an interval in the CSV."},
		Flag{Name: "sample-deadline", Value: Duration(&c.SampleDeadline), Metavar: "DURATION",
			Usage: "A library call that takes longer makes its devices stalled."},
		Flag{Name: "rescan-interval", Value: Duration(&c.RescanInterval), Metavar: "DURATION",
			Usage: "How often to check for devices that came or went."},
	), in(GroupPage,
		Flag{Name: "stale-after", Value: Duration(&c.StaleAfter), Metavar: "DURATION",
			Usage:        "Drop a device's series when its last sample is older than this.",
			ShownDefault: "30s, or 3 × collect-interval where that is longer"},
		Flag{Name: "exporter-metrics", Value: OneOf(&c.ExporterMetrics, MetricsNone, MetricsLean, MetricsFull), Metavar: "SET",
			Usage: "The exporter's own metrics to show. lean: the metrics that alerts need, such as states and ages of devices, at most 60 samples on a node of 8 GPUs and 4 NVSwitches; full: all metrics, for debugging the exporter; none."},
		Flag{Name: "absent-fields", Value: Bool(&c.AbsentFields),
			Usage: "Show warpgauge_field_absent{device,field,reason}: the reason for each listed field without a value. At most 4096 series."},
		Flag{Name: "hostname-label", Value: OneOf(&c.HostnameLabel, "hostname", "Hostname"), Metavar: "NAME",
			Usage: "Spelling of the hostname label: hostname, as in dcgm-exporter 4.8.3 and later, or Hostname, as before."},
	))
}

func ownCollectors(c *Config) []Flag {
	const vendor = " auto: if hardware and library are found; true: the same, and /readyz fails without it; false: never load the library."
	return in(GroupCollectors,
		Flag{Name: "enable-dcgm", Value: tristate(&c.DCGM), Metavar: "auto|true|false",
			Usage: "Read NVIDIA data centre GPUs through DCGM." + vendor},
		Flag{Name: "dcgm-library", Value: Text(&c.HostEngine.Library), Metavar: "FILE",
			Usage:        "The DCGM library, as path or soname; no other is tried.",
			ShownDefault: "libdcgm.so.4 in the loader's path, then in the directories of packages"},
		Flag{Name: "enable-nvml", Value: tristate(&c.NVML), Metavar: "auto|true|false",
			Usage: "Read NVIDIA GPUs through NVML while DCGM does not." + vendor},
		Flag{Name: "nvml-library", Value: Text(&c.NVMLSource.Library), Metavar: "FILE",
			Usage:        "The NVML library, as path or soname; no other is tried.",
			ShownDefault: "libnvidia-ml.so.1 in the loader's path, then in driver roots"},
		Flag{Name: "nvml-driver-root", Value: List(&c.NVMLSource.DriverRoots), Metavar: "DIRECTORY,…",
			Usage:        "Directories that hold the files of NVIDIA's driver as / does, to search before the usual ones. NVIDIA's variables DRIVER_ROOT_CTR_PATH and NVIDIA_DRIVER_ROOT add directories, too.",
			ShownDefault: "/, /run/nvidia/driver, /driver-root, /host, /usr/local/nvidia, /home/kubernetes/bin/nvidia, /opt/nvidia/current"},
		Flag{Name: "enable-rocm", Value: tristate(&c.ROCm), Metavar: "auto|true|false",
			Usage: "Read AMD GPUs (--rocm-source)." + vendor},
		Flag{Name: "rocm-source", Value: OneOf(&c.ROCmSource, ROCmSysfs, ROCmSMI, ROCmAMDSMI, ROCmAuto), Metavar: "SOURCE",
			Usage: "Source of values of AMD GPUs. sysfs: /sys, without a library; amdsmi: /sys, and AMD SMI in a child process for values that only it has; smi: ROCm SMI (up to ROCm 9) in a child process; auto: the same as sysfs."},
		Flag{Name: "rocm-smi-library", Value: Text(&c.ROCmLibrary), Metavar: "FILE",
			Usage: "File of librocm_smi64, or with amdsmi of libamd_smi, to load. none: search the loader's path and /opt/rocm."},
		Flag{Name: "enable-only", Value: Text(&c.Only), Metavar: "NAME,…",
			Usage:        "Use these collectors and no others: dcgm, nvml or rocm; fake is the same as --enable-fake alone. The flags above still apply to these.",
			ShownDefault: "all that hardware and libraries are found for"},
		Flag{Name: "require", Env: "WARPGAUGE_REQUIRE_GPU", Value: OneOf(&c.Require, slices.Concat([]string{RequireNone}, requirable(), []string{RequireAny})...), Metavar: "VENDOR",
			Usage: strings.Join(requirable(), ", ") + " or any: /readyz fails unless a GPU of that vendor is up, for nodes that must have GPUs. none: a node without GPUs is ready when every collector has been tried."},
		Flag{Name: "isolation", Value: OneOf(&c.Isolation, IsolationNone, IsolationProcess), Metavar: "MODE",
			Usage:        "process: each vendor's library runs in a child process, which is replaced when it dies; none: in this process.",
			ShownDefault: "process; none for simulated GPUs, unless the flag is given"},
		Flag{Name: "collector-memory-limit", Value: Bytes(&c.MemoryLimit), Metavar: "SIZE",
			Usage: "A child process whose resident memory grows beyond this is ended and replaced by another. 0: no limit."},
		Flag{Name: "collector-restart-max", Value: Duration(&c.RestartMax), Metavar: "DURATION",
			Usage: "Longest pause before a child process that has died is started again."},
	)
}

func ownServing(c *Config) []Flag {
	return slices.Concat(in(GroupWeb,
		Flag{Name: "enable-reload-endpoint", Aliases: []string{"web.enable-lifecycle"}, Value: Bool(&c.Web.Reload),
			Usage: "Serve POST /-/reload, which reads the CSV again."},
		Flag{Name: "enable-release-endpoint", Value: Bool(&c.Web.Release),
			Usage: "Serve POST /-/release and /-/resume, which close collectors (for a GPU reset, MIG changes, a driver upgrade) and open them again. SIGUSR1 and SIGUSR2 do the same. Also /-/profiling/pause and /-/profiling/resume, which leave the profiling hardware to other programs."},
	), in(GroupCollectors,
		Flag{Name: "release-timeout", Value: Duration(&c.ReleaseTimeout), Metavar: "DURATION",
			Usage: "End a release, or a pause of profiling, after this time if it is not resumed. 0: never."},
	), in(GroupLogging,
		Flag{Name: "log-level", Common: true, Value: level(&c.Log.Level), Metavar: "LEVEL",
			Usage: "debug, info, warn or error."},
	))
}

func ownOwners(c *Config) []Flag {
	k := &c.Kubernetes
	return in(GroupOwners,
		Flag{Name: "process-values", Needs: flagKubernetes, Value: tristate(&k.ProcessValues), Metavar: "auto|true|false",
			Usage: "Give the pods that share a GPU their own DCGM_FI_DEV_GPU_UTIL and DCGM_FI_DEV_FB_USED, from the processes on the GPU (needs the host's PIDs). auto: with --kubernetes-virtual-gpus."},
		Flag{Name: "pod-resources-interval", Needs: flagKubernetes, Value: Duration(&k.Interval), Metavar: "DURATION",
			Usage: "Time between two requests to the kubelet for the devices of containers."},
		Flag{Name: "hpc-job-labels", Needs: flagJobs, Value: List(&c.HPCLabels), Metavar: "user,partition",
			Usage: "Further labels of jobs, if the files in the directory contain them: user for job_user, partition for job_partition."},
	)
}

func ownFake(c *Config) []Flag {
	return in(GroupFake,
		Flag{Name: "enable-fake", Common: true, Value: Bool(&c.Fake.Enabled),
			Usage: "Simulate GPUs. The numbers are invented; only on if this flag is given."},
		Flag{Name: "fake-profile", Value: Text(&c.Fake.Profile), Metavar: "NAME",
			Usage: "Simulated node: dgx-h100, dgx-a100-mig, gb200, mi300x or rtx4090."},
		Flag{Name: "fake-devices", Value: Int(&c.Fake.Devices), Metavar: "N",
			Usage: "Number of simulated GPUs; 0 for the profile's number."},
		Flag{Name: "fake-spec", Value: Text(&c.Fake.Spec), Metavar: "FILE",
			Usage: "YAML that scripts loads and faults."},
		Flag{Name: "fake-seed", Value: unsigned(&c.Fake.Seed), Metavar: "N",
			Usage: "Seed of everything random in the simulation; the same seed gives the same values."},
	)
}
