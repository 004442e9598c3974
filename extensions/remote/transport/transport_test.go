package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"warpgauge/internal/testkit"
)

var must = testkit.Must

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// certify writes a self-signed certificate and its key to files, and returns both.
func certify(t *testing.T, dir, name string, until time.Time) (certFile, keyFile string, pair tls.Certificate) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der := testkit.Get(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	encoded := testkit.Get(x509.MarshalECPrivateKey(key))(t)
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	must(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}), 0o600))
	pair = testkit.Get(tls.LoadX509KeyPair(certFile, keyFile))(t)
	return certFile, keyFile, pair
}

// secure starts a TLS server that answers with the client's identity.
func secure(t *testing.T, pair tls.Certificate, clients tls.ClientAuthType) *url.URL {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "no client"
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		io.WriteString(w, name+" "+r.Header.Get("Authorization"))
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: clients}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	u, _ := url.Parse(s.URL)
	return u
}

// get sends a request and returns the answer or the error.
func get(t *testing.T, tr *Transport, u *url.URL) string {
	t.Helper()
	t.Cleanup(tr.CloseIdleConnections)
	client := &http.Client{Transport: tr, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		via[0].URL.Host = next.URL.Host // as if it were the same origin
		return Redirect(next, via, false)
	}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), http.NoBody)
	must(t, err)
	answer, err := client.Do(r)
	if err != nil {
		return "error: " + Plain(err, 0).Error()
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

func wantIn(t *testing.T, got, want string) {
	t.Helper()
	testkit.ErrorIf(t, !strings.Contains(got, want), "got %q, want %q in it", got, want)
}

// TestCredentialsRotate: every file is replaced while the program runs.
func TestCredentialsRotate(t *testing.T) {
	dir := t.TempDir()
	later := time.Now().Add(time.Hour)
	pinned, _, server := certify(t, dir, "server", later)
	cert, key, _ := certify(t, dir, "node1", later)
	ca, token := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
	link := func(to, path string) { must(t, errors.Join(os.RemoveAll(path), os.Symlink(to, path))) }
	replace := func(name string, until time.Time) { // cert-manager also replaces the content under the same names
		c, k, _ := certify(t, dir, name, until)
		must(t, errors.Join(os.Rename(c, cert), os.Rename(k, key)))
	}
	link(pinned, ca)
	must(t, os.WriteFile(token, []byte("one\n"), 0o600))
	u := secure(t, server, tls.RequireAnyClientCert)
	tr := New(u, Credentials{TokenFile: token, CAFile: ca, CertFile: cert, KeyFile: key})
	wantIn(t, get(t, tr, u), "node1 Bearer one")

	must(t, os.WriteFile(token, []byte("two"), 0o600))
	wantIn(t, get(t, tr, u), "node1 Bearer two")

	replace("node2", later)
	wantIn(t, get(t, tr, u), "node2 Bearer two")

	link(cert, ca) // the pinned CA is not the server's
	wantIn(t, get(t, tr, u), "certificate")
	link(pinned, ca)
	wantIn(t, get(t, tr, u), "node2 Bearer two")

	replace("old", time.Now().Add(-time.Minute))
	wantIn(t, get(t, tr, u), "has expired on")
	must(t, os.WriteFile(cert, []byte("garbage"), 0o600))
	wantIn(t, get(t, tr, u), "PEM")
	must(t, os.Remove(cert))
	wantIn(t, get(t, tr, u), "no such file")
	must(t, os.WriteFile(token, nil, 0o600))
	replace("node3", later)
	wantIn(t, get(t, tr, u), "has no token")
	must(t, os.WriteFile(token, []byte("two\nlines"), 0o600))
	wantIn(t, get(t, tr, u), "has no token")
	must(t, errors.Join(os.Remove(ca), os.WriteFile(ca, []byte("garbage"), 0o600)))
	wantIn(t, get(t, tr, u), "no certificate in PEM")
}

// TestServerCertificate: an error has nothing of the certificate, nor of a header.
func TestServerCertificate(t *testing.T) {
	dir := t.TempDir()
	ca, _, server := certify(t, dir, "server", time.Now().Add(-time.Minute))
	u := secure(t, server, tls.NoClientCert)
	wantIn(t, get(t, New(u, Credentials{CAFile: ca}), u), "expired")
	ca, _, server = certify(t, dir, "secret", time.Now().Add(time.Hour))
	u = secure(t, server, tls.NoClientCert)
	wantIn(t, get(t, New(u, Credentials{}), u), "of an unknown authority")
	u.Host = strings.Replace(u.Host, "127.0.0.1", "localhost", 1)
	wantIn(t, get(t, New(u, Credentials{CAFile: ca}), u), "for another name")
	wantIn(t, Plain(fmt.Errorf("broken: %w", textproto.ProtocolError("malformed MIME header line: secret")), 0).Error(), "is not HTTP")
}

// TestRedirect: another origin needs permission, and is never a private address.
func TestRedirect(t *testing.T) {
	f := func(to string, others bool, want string) {
		t.Helper()
		first, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://lists.example/a?secret", http.NoBody)
		next, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, to, http.NoBody)
		next.Header.Set("Referer", first.URL.String())
		got := Redirect(next, []*http.Request{first}, others)
		if fmt.Sprint(got) != "<nil>" && want == "" || !strings.Contains(fmt.Sprint(got), want) || next.Header.Get("Referer") != "" {
			t.Errorf("%s: %v, want %q; Referer %q", to, got, want, next.Header.Get("Referer"))
		}
	}
	f("http://lists.example/b", false, "")
	f("http://lists.example:81/b", false, "another origin")
	f("https://other.example/b", false, "another origin")
	f("http://192.0.2.7/b", true, "")
	for _, private := range []string{"127.0.0.1", "10.1.2.3", "192.168.1.1", "169.254.169.254", "[::1]", "[fe80::1]", "[fd00::1]", "[::ffff:10.0.0.1]", "0.0.0.1", "100.64.0.1", "192.0.0.192", "198.19.0.1", "240.0.0.1", "[64:ff9b::a00:1%25x]", "[64:ff9b:1::a00:1]", "[2002:a00:1::]", "[::a00:1]", "[fec0::1]"} {
		f("http://"+private+"/latest/meta-data", true, "private address")
	}
}

// TestRedirectToNameOfPrivateAddress: what counts is the address that the name has when it is dialled.
func TestRedirectToNameOfPrivateAddress(t *testing.T) {
	server := httptest.NewServer(nil)
	defer server.Close()
	server.Config.Handler = http.RedirectHandler(strings.Replace(server.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
	u, _ := url.Parse(server.URL)
	tr := New(u, Credentials{})
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, CheckRedirect: func(next *http.Request, via []*http.Request) error { return Redirect(next, via, true) }}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if _, err := client.Do(r); err == nil || Plain(err, 0).Error() != errPrivate.Error() { //nolint:bodyclose // there is none
		t.Errorf("%v, want %v", err, errPrivate)
	}
}

func TestTokenGoesToItsServerOnly(t *testing.T) {
	seen := "nothing"
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header.Get("Authorization") }))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusFound)
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte("secret"), 0o600))
	u, _ := url.Parse(server.URL)
	if text := get(t, New(u, Credentials{TokenFile: token}), u); seen != "" {
		t.Errorf("the other server has %q (%s)", seen, text)
	}
}
