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

// controlPlane are those without which nothing can run.
func (t tools) controlPlane() []string {
	return []string{t.apiserver, t.controllerManager, t.scheduler, t.kubectl, t.helm, t.chartTest, t.etcd, t.ip}
}

// node are those without which no container runs, monitoring those of Prometheus.
func (t tools) node() []string       { return []string{t.kubelet, t.pause, t.containerd, t.ctr, t.runc} }
func (t tools) monitoring() []string { return []string{t.prometheus, t.adapter} }

// missing returns a skip that names the first of the programs that is not here, and nil if all are.
func missing(programs []string) error {
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			return skip(err.Error())
		}
	}
	return nil
}

// path returns the PATH of the programs, without which they would find Debian's kubectl.
func (t tools) path() string {
	path := os.Getenv("PATH")
	for _, p := range []string{t.kubectl, t.helm} {
		if found, err := exec.LookPath(p); err == nil {
			path = filepath.Dir(found) + ":" + path
		}
	}
	return path
}
