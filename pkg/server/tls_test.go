package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/crypto/bcrypt"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/file"
)

// certificate writes cert.pem and key.pem for 127.0.0.1 to dir and returns the pool that trusts it.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	from := httptest.NewTLSServer(nil) // which has a certificate
	defer from.Close()
	pair := from.TLS.Certificates[0]
	key := testkit.Get(x509.MarshalPKCS8PrivateKey(pair.PrivateKey))(t)
	writePEM(t, filepath.Join(dir, "cert.pem"), "CERTIFICATE", pair.Certificate[0])
	writePEM(t, filepath.Join(dir, "key.pem"), "PRIVATE KEY", key)
	pool := x509.NewCertPool()
	pool.AddCert(from.Certificate())
	return pool
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func webConfig(t *testing.T, dir, text string) string {
	t.Helper()
	path := filepath.Join(dir, "web.yml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestTLSWithBasicAuth(t *testing.T) {
	dir := t.TempDir()
	pool := certificate(t, dir)
	hash := testkit.Get(bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost))(t)
	core, logs := observer.New(zap.InfoLevel)
	_, address, _ := start(t, pagesOf(textPage), Options{
		Logger: zap.New(core),
		Routes: Page(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})),
		WebConfigFile: webConfig(t, dir, `
tls_server_config: {cert_file: cert.pem, key_file: key.pem}
http_server_config: {headers: {Content-Security-Policy: "frame-ancestors 'self'"}}
basic_auth_users: {prometheus: `+string(hash)+`}
`),
	})
	c := client(t)
	tr := c.Transport.(*http.Transport)
	tr.TLSClientConfig = &tls.Config{RootCAs: pool}
	tr.ForceAttemptHTTP2 = true

	f := func(address, path, user, password string, code int) answer {
		t.Helper()
		req := testkit.Get(http.NewRequest(http.MethodGet, "https://"+address+path, nil))(t)
		if user != "" {
			req.SetBasicAuth(user, password)
		}
		got := do(t, c, req)
		testkit.Equal(t, fmt.Sprintf("%s as %q %q", path, user, password), code, got.code)
		return got
	}
	f(address, "/metrics", "prometheus", "secret", 200)
	f(address, "/metrics", "prometheus", "wrong", 401)
	f(address, "/metrics", "", "", 401)
	f(address, "/health", "", "", 401)
	index := f(address, "/", "prometheus", "secret", 200)
	testkit.Equal(t, "Content-Security-Policy, that of the file", "frame-ancestors 'self'", index.header.Get("Content-Security-Policy"))
	testkit.Equal(t, "version of HTTP where the client offers 2", 2, index.proto)
	testkit.Equal(t, "without TLS", http.StatusBadRequest, get(t, client(t), "http://"+address+"/metrics").code)

	if got, want := logs.All()[0].Message, "serving https://"+address+"/metrics"; got != want || logs.Len() != 1 {
		t.Errorf("logged %q first of %d, want %q", got, logs.Len(), want)
	}
}

// While the file cannot be read, its previous content stays in use, and no request waits.
func TestWebConfigThatIsAFIFO(t *testing.T) {
	path := basicAuth(t, bcrypt.MinCost)
	s, address, _ := start(t, pagesOf(textPage), Options{WebConfigFile: path})
	want := func(what string, code int) {
		t.Helper()
		req := testkit.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil))(t)
		req.SetBasicAuth("prometheus", "secret")
		testkit.Equal(t, what, code, do(t, client(t), req).code)
	}
	want("a good file", http.StatusOK)
	must(t, errors.Join(os.Rename(path, path+".was"), syscall.Mkfifo(path, 0o600)))
	s.web.refresh(s.web.refresh([32]byte{}))
	want("a FIFO", http.StatusOK)
	if err := New(nil, Options{WebConfigFile: path}).Run(t.Context()); !errors.Is(err, file.ErrNotRegular) {
		t.Errorf("start with a FIFO: %v", err)
	}
}

// TestHostileTLSFiles: an endless certificate costs one bounded read, and none for a client; another certificate is taken.
func TestHostileTLSFiles(t *testing.T) {
	dir := t.TempDir()
	pool := certificate(t, dir)
	s, address, _ := start(t, pagesOf(textPage), Options{WebConfigFile: webConfig(t, dir, "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n")})
	ask := func(pool *x509.CertPool) error {
		c := client(t)
		c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool}
		r, err := c.Get("https://" + address + "/livez")
		if err == nil {
			err = r.Body.Close()
		}
		return err
	}
	must(t, ask(pool))
	cert := filepath.Join(dir, "cert.pem")
	for _, hostile := range []string{"/dev/zero", filepath.Join(dir, "fifo"), filepath.Join(dir, "large")} {
		switch filepath.Base(hostile) {
		case "fifo":
			must(t, syscall.Mkfifo(hostile, 0o600))
		case "large":
			must(t, os.WriteFile(hostile, nil, 0o600))
			must(t, os.Truncate(hostile, 2<<30))
		}
		must(t, os.Remove(cert))
		must(t, os.Symlink(hostile, cert))
		s.web.refresh(s.web.refresh([32]byte{}))
		if err := ask(pool); err != nil {
			t.Errorf("%s: %v", hostile, err)
		}
	}
	must(t, os.Remove(cert))
	other := certificate(t, dir)
	s.web.refresh(s.web.refresh([32]byte{}))
	must(t, ask(other))
	webConfig(t, dir, "")
	s.web.refresh(s.web.refresh([32]byte{}))
	must(t, ask(other))
}

// Problems of the file appear before anything listens.
func TestWebConfigErrors(t *testing.T) {
	dir := t.TempDir()
	f := func(text string, want ...string) {
		t.Helper()
		path := webConfig(t, dir, text)
		s := New(nil, Options{Address: "127.0.0.1:0", WebConfigFile: path})
		err := s.Run(context.Background())
		if err == nil || len(addrs(s)) != 0 {
			t.Fatalf("%q: Run = %v, listens on %v; want an error", text, err, addrs(s))
		}
		for _, w := range append(want, "read web config file", path) {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: error %q lacks %q", text, err, w)
			}
		}
	}
	f("tls_server_config: {cert_file: absent.pem, key_file: absent.pem}", "absent.pem")
	f("tls_server_config: {cert_file: cert.pem}", "key_file")
	f("tls_server: {}", "tls_server")
	f("basic_auth_users: {prometheus: plain}", `user "prometheus"`, "hash", "htpasswd")
	f(":", "yaml")

	err := New(nil, Options{WebConfigFile: filepath.Join(dir, "none.yml")}).Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "none.yml") || strings.Count(err.Error(), "\n") != 0 {
		t.Errorf("absent file: %v", err)
	}
}
