package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	a.key = key
	a.cert, err = x509.ParseCertificate(der)
	must(t, err)
	return a
}

// sign writes a certificate and its key into files, and returns both.
func (a *authority) sign(dir, name string, until time.Time) (certFile, keyFile string, pair tls.Certificate) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	must(a.t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	encoded, err := x509.MarshalECPrivateKey(key)
	must(a.t, err)
	secret := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	must(a.t, os.WriteFile(certFile, text, 0o600))
	must(a.t, os.WriteFile(keyFile, secret, 0o600))
	pair, err = tls.X509KeyPair(text, secret)
	must(a.t, err)
	return certFile, keyFile, pair
}

func (a *authority) write(path string) {
	must(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600))
}

// secure is a server with TLS that says who asks.
func secure(t *testing.T, pair tls.Certificate, clients *authority) *url.URL {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "no client"
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		io.WriteString(w, name+" "+r.Header.Get("Authorization"))
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	if clients != nil {
		s.TLS.ClientAuth, s.TLS.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		s.TLS.ClientCAs.AddCert(clients.cert)
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	u, _ := url.Parse(s.URL)
	return u
}

// get asks and returns the answer or the error.
func get(t *testing.T, tr *Transport, u *url.URL) string {
	t.Helper()
	t.Cleanup(tr.CloseIdleConnections)
	client := &http.Client{Transport: tr, CheckRedirect: Redirect}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), http.NoBody)
	must(t, err)
	answer, err := client.Do(r)
	if err != nil {
		return "error: " + err.Error()
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

func wantIn(t *testing.T, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("got %q, want %q in it", got, want)
	}
}

// TestCredentialsRotate: every file is replaced while the program runs.
func TestCredentialsRotate(t *testing.T) {
	dir := t.TempDir()
	later := time.Now().Add(time.Hour)
	first := newAuthority(t)
	_, _, server := first.sign(dir, "server", later)
	cert, key, _ := first.sign(dir, "node1", later)
	ca, token := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
	first.write(ca)
	must(t, os.WriteFile(token, []byte("one\n"), 0o600))
	u := secure(t, server, first)
	tr := New(u, Credentials{TokenFile: token, CAFile: ca, CertFile: cert, KeyFile: key})
	wantIn(t, get(t, tr, u), "node1 Bearer one")

	must(t, os.WriteFile(token, []byte("two"), 0o600))
	wantIn(t, get(t, tr, u), "node1 Bearer two")

	for _, name := range []string{"node2"} { // as cert-manager does: other content under the same names
		c, k, _ := first.sign(dir, name, later)
		must(t, os.Rename(c, cert))
		must(t, os.Rename(k, key))
	}
	wantIn(t, get(t, tr, u), "node2 Bearer two")

	newAuthority(t).write(ca) // the pinned CA is another's: the server is none to trust
	wantIn(t, get(t, tr, u), "certificate")
	first.write(ca)
	wantIn(t, get(t, tr, u), "node2 Bearer two")

	c, k, _ := first.sign(dir, "old", time.Now().Add(-time.Minute))
	must(t, os.Rename(c, cert))
	must(t, os.Rename(k, key))
	wantIn(t, get(t, tr, u), "has expired on")
	must(t, os.WriteFile(cert, []byte("garbage"), 0o600))
	wantIn(t, get(t, tr, u), "PEM")
	must(t, os.Remove(cert))
	wantIn(t, get(t, tr, u), "no such file")
	must(t, os.WriteFile(token, nil, 0o600))
	c, k, _ = first.sign(dir, "node3", later)
	must(t, os.Rename(c, cert))
	must(t, os.Rename(k, key))
	wantIn(t, get(t, tr, u), "has no token")
	must(t, os.WriteFile(token, []byte("two\nlines"), 0o600))
	wantIn(t, get(t, tr, u), "has no token")
	must(t, os.WriteFile(ca, []byte("garbage"), 0o600))
	wantIn(t, get(t, tr, u), "no certificate in PEM")
}

func TestServerCertificateThatHasExpired(t *testing.T) {
	dir := t.TempDir()
	a := newAuthority(t)
	_, _, server := a.sign(dir, "server", time.Now().Add(-time.Minute))
	ca := filepath.Join(dir, "ca.pem")
	a.write(ca)
	u := secure(t, server, nil)
	wantIn(t, get(t, New(u, Credentials{CAFile: ca}), u), "expired")
	wantIn(t, get(t, New(u, Credentials{}), u), "certificate")
}

func TestTokenGoesToItsServerOnly(t *testing.T) {
	var seen string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header.Get("Authorization") }))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusFound)
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte("secret"), 0o600))
	u, _ := url.Parse(server.URL)
	seen = "nothing"
	if text := get(t, New(u, Credentials{TokenFile: token}), u); seen != "" {
		t.Errorf("the other server has %q (%s)", seen, text)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
