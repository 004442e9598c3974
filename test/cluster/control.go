package main

import (
	"errors"
	"time"
)

// startControlPlane starts what a control plane consists of and waits until it answers.
func (n *node) startControlPlane() (string, error) {
	if err := n.certificates(); err != nil {
		return "", err
	}
	if err := n.credentials(); err != nil {
		return "", err
	}
	begin := time.Now()
	if _, err := n.launch("etcd", n.tools.etcd, "--data-dir", n.path("etcd"),
		"--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
		"--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync"); err != nil {
		return "", err
	}
	if err := n.startAPIServer(); err != nil {
		return "", err
	}
	// Autoscaling as fast as a test wants it; with the defaults it takes minutes.
	_, err := n.launch("kube-controller-manager", n.tools.controllerManager,
		"--kubeconfig", n.path("admin.kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1",
		"--use-service-account-credentials", "--root-ca-file", n.path("ca.crt"),
		"--service-account-private-key-file", n.path("service-account.key"),
		"--horizontal-pod-autoscaler-sync-period=3s",
		"--horizontal-pod-autoscaler-downscale-stabilization=10s",
		"--horizontal-pod-autoscaler-initial-readiness-delay=1s",
		"--horizontal-pod-autoscaler-cpu-initialization-period=1s")
	if err != nil {
		return "", err
	}
	if _, err = n.launch("kube-scheduler", n.tools.scheduler,
		"--kubeconfig", n.path("admin.kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1"); err != nil {
		return "", err
	}
	version, err := n.client.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	return "Kubernetes " + version.GitVersion + " answers after " + since(begin), nil
}

func (n *node) certificates() error {
	ca, err := n.newAuthority("ca")
	if err != nil {
		return err
	}
	front, err := n.newAuthority("front-proxy-ca")
	if err != nil {
		return err
	}
	accounts := &authority{node: n}
	_, _, err = accounts.issue("service-account", accounts.template("service-account"))
	return errors.Join(err,
		ca.server("apiserver", []string{"localhost", "kubernetes", "kubernetes.default.svc"}, serviceIP, nodeIP, "127.0.0.1"),
		front.client("front-proxy-client"))
}

func (n *node) startAPIServer() error {
	_, err := n.launch("kube-apiserver", n.tools.apiserver,
		"--etcd-servers=http://127.0.0.1:2379", "--secure-port=443", "--advertise-address="+nodeIP,
		"--service-cluster-ip-range="+serviceNet,
		"--tls-cert-file", n.path("apiserver.crt"), "--tls-private-key-file", n.path("apiserver.key"),
		"--token-auth-file", n.path("tokens.csv"),
		"--authorization-mode=Node,RBAC", "--allow-privileged", "--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file", n.path("service-account.key"),
		"--service-account-signing-key-file", n.path("service-account.key"),
		// For servers behind it, such as Prometheus Adapter.
		"--requestheader-client-ca-file", n.path("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file", n.path("front-proxy-client.crt"), "--proxy-client-key-file", n.path("front-proxy-client.key"),
		"--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true", // which older clusters serve
		"--kubelet-preferred-address-types=InternalIP")
	if err != nil {
		return err
	}
	return n.wait(60*time.Second, func() error {
		_, err := n.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(n.ctx)
		return err
	})
}
