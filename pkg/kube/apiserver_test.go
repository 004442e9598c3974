package kube

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
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

func TestTLSThatCannotBeTrusted(t *testing.T) {
	for _, test := range []struct {
		name         string
		start        func(*httptest.Server)
		trusted      bool
		host, reason string
	}{
		{"another authority", (*httptest.Server).StartTLS, false, "127.0.0.1", ReasonTLS},
		{"another name", (*httptest.Server).StartTLS, true, "localhost", ReasonTLS},
		{"no TLS at all", (*httptest.Server).Start, false, "127.0.0.1", ReasonTLS},
		{"trusted, and no API server", (*httptest.Server).StartTLS, true, "127.0.0.1", ReasonNotServed},
	} {
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
		test.start(server)
		defer server.Close()
		_, port, err := net.SplitHostPort(server.Listener.Addr().String())
		must(t, err)
		config := &rest.Config{Host: "https://" + net.JoinHostPort(test.host, port)}
		if test.trusted {
			config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		}
		c := startAPI(t, APIOptions{Node: "node-1", Pods: true}, func() (*rest.Config, error) { return config, nil })
		eventually.True(t, "failure", func() bool { return c.health.State().Failing != "" })
		c.stop()
		if s := c.health.State(); s.Failing != test.reason || !strings.Contains(s.Problem.Error(), "list pods") {
			t.Errorf("%s: failing for %q: %v; want %q", test.name, s.Failing, s.Problem, test.reason)
		}
	}
	// As crypto/tls reports a certificate that has expired or is not valid yet.
	old := &url.Error{Op: "Get", URL: "/", Err: &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}}
	if said := (resource{"", "pods"}).explain("list", old).Error(); reasonOf(old) != ReasonTLS || !strings.Contains(said, "list pods: a certificate has expired or is not valid yet, or the clock of this node is wrong") {
		t.Errorf("expired: %q, %s", reasonOf(old), said)
	}
}

func TestConfigFromEnvironment(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o600))
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
