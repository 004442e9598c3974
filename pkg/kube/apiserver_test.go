package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/kube/kubetest/apitest"
)

// certificate returns a self-signed certificate for 127.0.0.1, and its PEM.
func certificate(t *testing.T, from, until time.Time) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: from, NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestTLSThatCannotBeTrusted(t *testing.T) {
	now := time.Now()
	good, goodPEM := certificate(t, now.Add(-time.Hour), now.Add(time.Hour))
	_, otherPEM := certificate(t, now.Add(-time.Hour), now.Add(time.Hour))
	old, oldPEM := certificate(t, now.Add(-2*time.Hour), now.Add(-time.Hour))
	early, earlyPEM := certificate(t, now.Add(time.Hour), now.Add(2*time.Hour))
	for _, test := range []struct {
		name  string
		cert  tls.Certificate
		ca    []byte
		host  string
		plain bool
		says  string
	}{
		{"another authority", good, otherPEM, "127.0.0.1", false, "list pods"},
		{"another name", good, goodPEM, "localhost", false, "list pods"},
		{"expired", old, oldPEM, "127.0.0.1", false, "the clock of this node is wrong"},
		{"not valid yet", early, earlyPEM, "127.0.0.1", false, "the clock of this node is wrong"},
		{"no TLS at all", good, goodPEM, "127.0.0.1", true, "list pods"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			server.TLS = &tls.Config{Certificates: []tls.Certificate{test.cert}, MinVersion: tls.VersionTLS12}
			server.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
			if test.plain {
				server.Start()
			} else {
				server.StartTLS()
			}
			defer server.Close()
			_, port, err := net.SplitHostPort(server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			c := startAPI(t, APIOptions{Node: "node-1", Pods: true}, func() (*rest.Config, error) {
				return &rest.Config{Host: "https://" + net.JoinHostPort(test.host, port), TLSClientConfig: rest.TLSClientConfig{CAData: test.ca}}, nil
			})
			eventually.True(t, "failure", func() bool { return c.health.State().Failing != "" })
			c.stop()
			if s := c.health.State(); s.Failing != ReasonTLS || !strings.Contains(s.Problem.Error(), test.says) {
				t.Errorf("failing for %q: %v; want %q and %q", s.Failing, s.Problem, ReasonTLS, test.says)
			}
		})
	}
}

func TestConfigFromEnvironment(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"https://api.example.com:6443"}}],
"users":[{"name":"u","user":{"token":"t"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}`)
	empty := file("empty", "")
	for _, test := range []struct {
		name, kubeconfig, host string
		want, says             string
	}{
		{"a file", good, "", "https://api.example.com:6443", ""},
		{"the first of two", good + string(filepath.ListSeparator) + empty, "", "https://api.example.com:6443", ""},
		{"before the service account", good, "10.0.0.1", "https://api.example.com:6443", ""},
		{"no such file", filepath.Join(dir, "none"), "", "", "use KUBECONFIG"},
		{"an empty file", empty, "10.0.0.1", "", "use KUBECONFIG"},
		{"no YAML", file("bad", "{"), "", "", "read KUBECONFIG"},
		{"nothing", "", "", "", "not a pod of a cluster (KUBERNETES_SERVICE_HOST is not set), and KUBECONFIG is not set"},
		{"a pod without a token", "", "10.0.0.1", "", "no service account token (automountServiceAccountToken)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.name == "a pod without a token" {
				if _, err := os.Stat("/var/run/secrets/kubernetes.io/serviceaccount/token"); err == nil {
					t.Skip("this is a pod with a token")
				}
			}
			t.Setenv("KUBECONFIG", test.kubeconfig)
			t.Setenv("KUBERNETES_SERVICE_HOST", test.host)
			t.Setenv("KUBERNETES_SERVICE_PORT", "443")
			got, err := configFromEnvironment()
			switch {
			case test.says == "" && (err != nil || got.Host != test.want):
				t.Errorf("%v, %v, want %s", got, err, test.want)
			case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
				t.Errorf("error %v, want %q in it", err, test.says)
			}
		})
	}
}

// The client finds a service account or a valid configuration that appears after its start.
func TestAConfigThatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, asked := apitest.Pipe(t, "node-1"), 0
		c := startAPI(t, podOptions(s), func() (*rest.Config, error) {
			switch asked++; {
			case asked < 3:
				return nil, os.ErrNotExist
			case asked < 5:
				return &rest.Config{Host: "https://x", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("none")}}, nil
			}
			return s.Config()
		})
		c.failing(t, ReasonNoConfig, "read pods: cannot find the API server")
		time.Sleep(10 * time.Minute)
		c.failing(t, "", "")
		c.stop()
	})
}
