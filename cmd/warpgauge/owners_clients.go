package main

import (
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/config"
	"warpgauge/pkg/cri"
	"warpgauge/pkg/hpc"
	"warpgauge/pkg/mapping"
	"warpgauge/pkg/owner"
	"warpgauge/pkg/podmeta"
	"warpgauge/pkg/podresources"
)

// addKubelet asks the kubelet which container has which device.
func (o *owners) addKubelet(cfg *config.Config, table *owner.Options, changed func(), log *zap.Logger) {
	h := mapping.New(mapping.PodResources, log, podresources.Reasons()...)
	c := podresources.New(podresources.Options{
		Socket:   cfg.Kubernetes.Socket,
		Period:   cfg.Kubernetes.Interval,
		Keep:     owner.Keep(cfg.Kubernetes.ResourceNames),
		OnChange: changed, Health: h, Log: log,
	})
	table.PodResources = c.Snapshot
	o.suspicion.kubelet = c
	o.add(client{name: "pod resources", run: c.Run, grace: 200 * time.Millisecond}, h)
}

// addAPIServer asks the API server for what the kubelet does not tell, where
// somebody wants to know it. Values of processes want uids of pods, which the
// container runtime knows, too.
func (o *owners) addAPIServer(a *app, cfg *config.Config, table *owner.Options, changed func(), log *zap.Logger) {
	k := &cfg.Kubernetes
	pods := k.PodLabels || k.PodUID || k.ProcessValuesWanted() && cfg.Containers.Socket == ""
	if !pods && !k.DRA {
		return
	}
	podmeta.RouteKlog(log)
	node, _ := a.lookup("NODE_NAME")
	options := podmeta.Options{
		Node: node, Pods: pods, Slices: k.DRA, UserAgent: "warpgauge/" + a.build.version,
		OnChange: changed, Log: log,
	}
	if k.PodLabels {
		options.KeepLabel = k.KeepLabel
	}
	var told []*mapping.Health
	if pods {
		options.PodHealth = mapping.New(mapping.PodMetadata, log, podmeta.Reasons()...)
		told = append(told, options.PodHealth)
	}
	if k.DRA {
		options.SliceHealth = mapping.New(mapping.ResourceSlices, log, podmeta.Reasons()...)
		told = append(told, options.SliceHealth)
	}
	c := podmeta.New(options)
	table.PodMeta = c.Snapshot
	o.add(client{name: "pod metadata", run: c.Run, grace: 300 * time.Millisecond}, told...)
}

// addRuntime asks the container runtime for the names of containers.
func (o *owners) addRuntime(cfg *config.Config, table *owner.Options, changed func(), log *zap.Logger) {
	if cfg.Containers.Socket == "" {
		return
	}
	h := mapping.New(mapping.ContainerRuntime, log, cri.Reasons()...)
	c := cri.New(cri.Options{Socket: cfg.Containers.Socket, OnChange: changed, Health: h, Log: log})
	table.Containers = c.Snapshot
	o.suspicion.runtime, o.suspicion.containers = c, c.Snapshot
	o.add(client{name: "container runtime", run: c.Run, grace: 200 * time.Millisecond}, h)
}

// addJobs reads the files of batch jobs.
func (o *owners) addJobs(cfg *config.Config, table *owner.Options, changed func(), log *zap.Logger) {
	h := mapping.New(mapping.HPCJobs, log, hpc.Reasons()...)
	c := hpc.New(hpc.Options{Dir: cfg.HPCJobDir, OnChange: changed, Health: h, Log: log})
	table.Jobs = c.Snapshot
	o.add(client{name: "job directory", run: c.Run, settled: c.Settled, grace: 300 * time.Millisecond}, h)
}
