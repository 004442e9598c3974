// Command cluster runs warpgauge in a Kubernetes cluster of one node. Only the GPUs are simulated. These are real:
// etcd, API server, controller manager, scheduler, kubelet and containerd, Helm and our chart. `make e2e-cluster`
// builds the programs and starts the cluster.
//
// The cluster runs in its own namespaces (mounts, processes, network, host name): it changes nothing on this machine,
// and everything ends with its first process.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"k8s.io/client-go/kubernetes"
)

// Modes in which the program starts itself. A user starts it without a mode.
const (
	modeInit = "init" // process 1 of the namespaces
	modeNode = "node" // runs the cluster and its checks
)

// errSaid is a failure that another process has already reported.
var errSaid = errors.New("already said")

// options are the same in all modes.
type options struct {
	repo    string // root of the repository
	tools   string // folder of the programs that go.mod pins
	crds    string // folder of the Prometheus operator's CRDs
	release string // folder of make release with the chart and image to use; "": both are built from the tree
	logs    string // logs of the servers
	dir     string // everything else; made and removed by the first process
}

func main() {
	if err := try(func() { start(os.Args[1:]) }); err != nil {
		if !errors.Is(err, errSaid) {
			fmt.Fprintln(os.Stderr, "cluster:", err)
		}
		os.Exit(1)
	}
}

func start(args []string) {
	var mode string
	if len(args) > 0 && (args[0] == modeInit || args[0] == modeNode) {
		mode, args = args[0], args[1:]
	}
	var o options
	set := flag.NewFlagSet("cluster", flag.ContinueOnError)
	set.StringVar(&o.repo, "repo", ".", "root of the repository")
	set.StringVar(&o.tools, "tools", ".tools", "folder of the programs")
	set.StringVar(&o.crds, "crds", "", "folder of the Prometheus operator's CRDs")
	set.StringVar(&o.release, "release", "", "folder of a release, whose chart and image are used")
	set.StringVar(&o.logs, "logs", "dist/e2e-cluster", "folder for the servers' logs")
	set.StringVar(&o.dir, "dir", "", "folder for everything else (made by the program itself)")
	must(set.Parse(args))
	for _, p := range []*string{&o.repo, &o.tools, &o.logs, &o.release} {
		if *p != "" {
			*p = get(filepath.Abs(*p))
		}
	}
	findPrograms(o)
	switch mode {
	case modeInit:
		initNamespaces(o)
	case modeNode:
		n := &node{options: o}
		n.ctx, n.cancel = context.WithCancelCause(context.Background())
		defer n.cancel(nil)
		n.checks()
	default:
		// The kernel sends the parent's death signal when the thread that started the child ends.
		runtime.LockOSThread()
		runOutside(o)
	}
}

func (o options) args(mode string) []string {
	return []string{mode, "-repo", o.repo, "-tools", o.tools, "-crds", o.crds, "-release", o.release, "-logs", o.logs, "-dir", o.dir}
}

// node is the machine of the cluster: its servers and the state that checks share.
type node struct {
	options
	ctx    context.Context
	cancel context.CancelCauseFunc
	client kubernetes.Interface

	chart string   // the installed package
	uuids []string // of the simulated GPUs, by index
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// write writes a file below the folder of the run and returns its path.
func (n *node) write(name, text string, mode os.FileMode) string {
	must(os.WriteFile(n.path(name), []byte(text), mode))
	return n.path(name)
}

const (
	monitoring = "monitoring" // namespace of the chart
	workloads  = "ml"         // namespace of the pods with GPUs

	gpu       = "nvidia.com/gpu"
	sharedGPU = "nvidia.com/gpu.shared"
)

// The resources of the simulated GPUs: 0 to 5 are whole, 6 has two time slices.
const (
	wholeGPUs = 6
	sliced    = 6
)

//go:embed manifests
var manifests embed.FS

// checks runs the checks in the order in which they depend on each other.
func (n *node) checks() {
	check("control plane: etcd, API server, controller manager, scheduler", n.startControlPlane)
	check("a lost GPU: condition and event of the node appear and are withdrawn, with leave for nothing else", n.nodeHealth)
	check("the chart as a package", n.packageChart)
	check("every variant of the chart passes the API server's dry run, with the Prometheus operator's CRDs", n.dryRun)
	check("pods are on the nodes of both vendors, on those of nodeSelector, and on none whose driver is replaced; the notes count them", n.placement)
	if why := missing("kubelet", "cluster-pause", "cluster-warpgauge", "containerd", "ctr", "runc"); why != nil {
		fmt.Println("no pod is run:", why)
		return
	}
	check("containerd and runc start a container", n.startContainerd)
	check("the kubelet makes a node", n.startNode)
	check("device plugin: "+gpu+" and time slices", n.startPlugins)
	check("pods that ask for GPUs run", n.startWorkloads)
	check("the chart's DaemonSet is ready, without leave to read pods", n.installWithoutLeave)
	check("namespace, pod and container, a series for each container on a shared GPU, and with the chart's RBAC labels and uid of pods", n.owners)
	check("helm test passes", n.helmTest)
	check("the release is uninstalled and leaves nothing", n.uninstall)
}
