package main

import (
	"os"
	"os/exec"
	"path/filepath"
)

// tools are the programs of the cluster: our own builds, then what Debian has.
type tools struct {
	apiserver, controllerManager, scheduler, kubelet, kubectl string
	adapter, helm, chartTest, pause                           string
	etcd, containerd, ctr, runc, prometheus, ip               string
}

func newTools(o options) tools {
	own := func(pattern, name string) string {
		if found, _ := filepath.Glob(filepath.Join(o.tools, pattern, name)); len(found) > 0 {
			return found[len(found)-1]
		}
		return name
	}
	k := func(name string) string { return own("kubernetes-v*", name) }
	return tools{
		apiserver: k("kube-apiserver"), controllerManager: k("kube-controller-manager"), scheduler: k("kube-scheduler"),
		kubelet: k("kubelet"), kubectl: k("kubectl"),
		adapter: own("prometheus-adapter-v*", "adapter"), helm: own("helm-v*", "helm"),
		chartTest: filepath.Join(o.repo, "bin/chart.test"), pause: filepath.Join(o.repo, "bin/cluster-pause"),
		etcd: own("etcd-server", "etcd"), containerd: "containerd", ctr: "ctr", runc: "runc", prometheus: "prometheus", ip: "ip",
	}
}

func (t tools) all() []string {
	return []string{
		t.apiserver, t.controllerManager, t.scheduler, t.kubelet, t.kubectl, t.adapter, t.helm, t.chartTest, t.pause,
		t.etcd, t.containerd, t.ctr, t.runc, t.prometheus, t.ip,
	}
}

// path is what programs find other programs by: kubectl is Debian's otherwise.
func (t tools) path() string {
	path := os.Getenv("PATH")
	for _, p := range []string{t.kubectl, t.helm} {
		if found, err := exec.LookPath(p); err == nil {
			path = filepath.Dir(found) + ":" + path
		}
	}
	return path
}
