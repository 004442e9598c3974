package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// node is the machine of the cluster: its servers and the state that checks share.
type node struct {
	options
	tools  tools
	ctx    context.Context
	cancel context.CancelCauseFunc
	client kubernetes.Interface
	report report

	chart   string   // the package that is installed
	uuids   []string // of the simulated GPUs, by index
	kubelet *process
	plugins []*devicePlugin
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// runNode starts the cluster, checks everything, and prints what held.
func runNode(o options) error {
	n := &node{options: o, tools: newTools(o), report: report{start: time.Now()}}
	n.ctx, n.cancel = context.WithCancelCause(context.Background())
	defer n.cancel(nil)
	n.checks()
	return n.report.print()
}

// credentials writes tokens and configurations of clients, and makes our client.
func (n *node) credentials() error {
	// The kubelet is who the node authorizer thinks it is, and no administrator.
	tokens := "admin-token,admin,admin,\"system:masters\"\nkubelet-token,system:node:" + nodeName + ",kubelet,\"system:nodes\"\n"
	errs := []error{os.WriteFile(n.path("tokens.csv"), []byte(tokens), 0o600)}
	for _, who := range []string{"admin", "kubelet"} {
		config := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://%s:443", certificate-authority: %s}}]
users: [{name: u, user: {token: %s-token}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
`, serviceIP, n.path("ca.crt"), who)
		errs = append(errs, os.WriteFile(n.path(who+".kubeconfig"), []byte(config), 0o600))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", n.path("admin.kubeconfig"))
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 100, 100
	n.client, err = kubernetes.NewForConfig(config)
	return err
}
