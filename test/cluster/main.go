// Command cluster runs warpgauge in a Kubernetes cluster of one node. Only the GPUs are
// simulated. These are real: etcd, API server, controller manager, scheduler, kubelet and
// containerd, Helm and our chart, Prometheus, Prometheus Adapter. `make e2e-cluster`
// builds the programs and starts the cluster.
//
// The cluster lives in namespaces of its own (mounts, processes, network, host name):
// nothing on this machine changes, and with the first process everything ends.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// Modes in which the program starts itself; what the user starts has none.
const (
	modeInit = "init" // process 1 of the namespaces
	modeNode = "node" // what runs the cluster and its checks
)

// errSaid is a failure that another process has reported.
var errSaid = errors.New("already said")

// options are the same in every mode.
type options struct {
	repo    string // root of the repository
	tools   string // folder of the programs that go.mod pins
	crds    string // folder of the Prometheus operator's CRDs
	release string // folder of make release: its chart and its image are used; "": both are made of the tree
	logs    string // what the servers say
	dir     string // everything else; made and removed by the first process
}

func main() {
	err := start(os.Args[1:])
	if err == nil {
		return
	}
	if !errors.Is(err, errSaid) {
		fmt.Fprintln(os.Stderr, "cluster:", err)
	}
	os.Exit(1)
}

func start(args []string) error {
	var mode string
	if len(args) > 0 && (args[0] == modeInit || args[0] == modeNode) {
		mode, args = args[0], args[1:]
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	switch mode {
	case modeInit:
		return initNamespaces(o)
	case modeNode:
		return runNode(o)
	}
	// The kernel sends the parent's death signal when the thread that started the child ends.
	runtime.LockOSThread()
	return runOutside(o)
}

func parse(args []string) (options, error) {
	var o options
	set := flag.NewFlagSet("cluster", flag.ContinueOnError)
	set.StringVar(&o.repo, "repo", ".", "root of the repository")
	set.StringVar(&o.tools, "tools", ".tools", "folder of the programs")
	set.StringVar(&o.crds, "crds", "", "folder of the Prometheus operator's CRDs")
	set.StringVar(&o.release, "release", "", "folder of a release, whose chart and image are used")
	set.StringVar(&o.logs, "logs", "dist/e2e-cluster", "folder for the servers' logs")
	set.StringVar(&o.dir, "dir", "", "folder for everything else (made by the program itself)")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	for _, p := range []*string{&o.repo, &o.tools, &o.logs, &o.release} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		*p = abs
		errs = append(errs, err)
	}
	return o, errors.Join(errs...)
}

func (o options) args(mode string) []string {
	return []string{mode, "-repo", o.repo, "-tools", o.tools, "-crds", o.crds, "-release", o.release, "-logs", o.logs, "-dir", o.dir}
}
