package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// startControlPlane starts the servers of a control plane and waits until the API server answers.
func (n *node) startControlPlane() string {
	n.certificates()
	n.credentials()
	begin := time.Now()
	n.launch("etcd", "etcd", "--data-dir", n.path("etcd"),
		"--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
		"--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync")
	n.launch("kube-apiserver", "kube-apiserver",
		"--etcd-servers=http://127.0.0.1:2379", "--secure-port=443", "--advertise-address="+nodeIP,
		"--service-cluster-ip-range="+serviceNet,
		"--tls-cert-file", n.path("apiserver.crt"), "--tls-private-key-file", n.path("apiserver.key"),
		"--token-auth-file", n.path("tokens.csv"),
		"--authorization-mode=Node,RBAC", "--allow-privileged", "--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file", n.path("service-account.key"),
		"--service-account-signing-key-file", n.path("service-account.key"),
		"--kubelet-preferred-address-types=InternalIP")
	n.wait(60*time.Second, func() { get(n.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(n.ctx)) })
	n.launch("kube-controller-manager", "kube-controller-manager",
		"--kubeconfig", n.path("admin.kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1",
		"--use-service-account-credentials", "--root-ca-file", n.path("ca.crt"),
		"--service-account-private-key-file", n.path("service-account.key"))
	n.launch("kube-scheduler", "kube-scheduler",
		"--kubeconfig", n.path("admin.kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1")
	version := get(n.client.Discovery().ServerVersion())
	return "Kubernetes " + version.GitVersion + " answers after " + since(begin)
}

// credentials writes tokens and client configurations, and creates our client.
func (n *node) credentials() {
	// The kubelet's token identifies the node to the node authorizer, without administrator rights.
	n.write("tokens.csv", "admin-token,admin,admin,\"system:masters\"\nkubelet-token,system:node:"+nodeName+",kubelet,\"system:nodes\"\n", 0o600)
	n.kubeconfig("kubelet", "kubelet-token")
	config := get(clientcmd.BuildConfigFromFlags("", n.kubeconfig("admin", "admin-token")))
	config.QPS, config.Burst = 100, 100
	n.client = get(kubernetes.NewForConfig(config))
}

// kubeconfig writes the configuration of a client with a token and returns its path.
func (n *node) kubeconfig(name, token string) string {
	return n.write(name+".kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://%s:443", certificate-authority: %s}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
`, serviceIP, n.path("ca.crt"), token), 0o600)
}

func (n *node) certificates() {
	ca := n.issue("ca", nil, x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	n.issue("service-account", nil, x509.Certificate{}) // only its key is used
	n.issue("apiserver", ca, x509.Certificate{
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.ParseIP(serviceIP), net.ParseIP(nodeIP), net.ParseIP("127.0.0.1")},
	})
}

// signer is a certificate with its key.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue writes NAME.crt and NAME.key, valid for a day. by signs the certificate; if by is nil, the certificate is
// self-signed.
func (n *node) issue(name string, by *signer, c x509.Certificate) *signer {
	key := get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	c.Subject.CommonName, c.SerialNumber = name, get(rand.Int(rand.Reader, big.NewInt(1<<62)))
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	if by == nil {
		by = &signer{&c, key}
	}
	der := get(x509.CreateCertificate(rand.Reader, &c, by.cert, &key.PublicKey, by.key))
	n.write(name+".crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), 0o644)
	n.write(name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: get(x509.MarshalECPrivateKey(key))})), 0o600)
	return &signer{get(x509.ParseCertificate(der)), key}
}
