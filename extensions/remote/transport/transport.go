// Package transport asks servers of field lists: it rotates credentials, limits redirects and removes secrets from errors.
package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"warpgauge/pkg/file"
)

// Credentials are files with this node's credentials and the trusted CAs. An empty path means none; of CAs: the system's.
type Credentials struct {
	TokenFile string // a bearer token
	CAFile    string // PEM
	CertFile  string
	KeyFile   string
}

// Limits of a Transport.
const (
	maxCredential  = 1 << 20
	dialTimeout    = 10 * time.Second
	answerTimeout  = 15 * time.Second // until the response header
	maxAnswerHead  = 64 << 10
	idleConnection = 90 * time.Second
)

// Transport sends requests to one server. It reads the Credentials' files before each. It is safe for concurrent use.
type Transport struct {
	c      Credentials
	server *url.URL
	files  *file.Reader

	mu     sync.Mutex
	read   [3][]byte // content of CA, certificate and key in transport
	inside *http.Transport
}

// New returns a Transport for the scheme and host of a URL. It sends the token to no other server.
func New(server *url.URL, c Credentials) *Transport {
	return &Transport{c: c, server: server, files: file.NewReader(maxCredential)}
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	inside, err := t.renew(r.Context())
	if err != nil {
		return nil, err
	}
	if r.URL.Scheme == t.server.Scheme && r.URL.Host == t.server.Host {
		token, err := t.token(r.Context())
		if err != nil {
			return nil, err
		}
		if token != "" {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+token)
		}
	}
	return inside.RoundTrip(r)
}

// CloseIdleConnections closes connections that are not in use.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inside != nil {
		t.inside.CloseIdleConnections()
	}
}

// token reads the token file; it returns "" if none is configured.
func (t *Transport) token(ctx context.Context) (string, error) {
	if t.c.TokenFile == "" {
		return "", nil
	}
	text, err := t.files.Read(ctx, t.c.TokenFile)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	text = bytes.TrimSpace(text)
	if len(text) == 0 || bytes.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%q has no token: write one line of printable characters", t.c.TokenFile)
	}
	return string(text), nil
}

// renew reads the files and replaces the transport if one changed. Connections with old certificates close once idle.
func (t *Transport) renew(ctx context.Context) (*http.Transport, error) {
	var now [3][]byte
	for i, path := range []string{t.c.CAFile, t.c.CertFile, t.c.KeyFile} {
		if path == "" {
			continue
		}
		var err error
		if now[i], err = t.files.Read(ctx, path); err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inside != nil && slices.EqualFunc(now[:], t.read[:], bytes.Equal) {
		return t.inside, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.c.CAFile != "" {
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(now[0]) {
			return nil, fmt.Errorf("%q has no certificate in PEM", t.c.CAFile)
		}
	}
	if t.c.CertFile != "" {
		pair, err := tls.X509KeyPair(now[1], now[2])
		if err != nil {
			return nil, fmt.Errorf("%q and %q: %w", t.c.CertFile, t.c.KeyFile, err)
		}
		if leaf := pair.Leaf; leaf != nil && time.Now().After(leaf.NotAfter) {
			return nil, fmt.Errorf("the certificate %q has expired on %s", t.c.CertFile, leaf.NotAfter.UTC().Format(time.RFC3339))
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if t.inside != nil {
		defer t.inside.CloseIdleConnections()
	}
	t.read = now
	t.inside = &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: dialTimeout, ControlContext: control}).DialContext,
		TLSClientConfig:        c,
		TLSHandshakeTimeout:    dialTimeout,
		ResponseHeaderTimeout:  answerTimeout,
		MaxResponseHeaderBytes: maxAnswerHead,
		MaxIdleConns:           2,
		IdleConnTimeout:        idleConnection,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // a decompressed body would need its own bound
	}
	return t.inside, nil
}

// ServerError is an error reported by the server.
type ServerError struct {
	Text  string
	Code  int           // HTTP status; 0: reported in a message
	After time.Duration // when to ask again, at most MaxRetryAfter; 0: default
}

func (e *ServerError) Error() string { return e.Text }

// MaxRetryAfter is the longest pause that a server can request.
const MaxRetryAfter = time.Hour

// Fault returns the error for an unexpected HTTP status.
func Fault(r *http.Response) *ServerError {
	e := &ServerError{Code: r.StatusCode, Text: fmt.Sprintf("the server answers with HTTP status %d %s", r.StatusCode, http.StatusText(r.StatusCode))}
	if e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden {
		e.Text += ": check the token and the certificate"
	}
	text := r.Header.Get("Retry-After")
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		e.After = min(time.Duration(n)*time.Second, MaxRetryAfter)
	} else if at, err := http.ParseTime(text); err == nil {
		e.After = min(max(0, time.Until(at)), MaxRetryAfter)
	}
	return e
}

var quotes = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`")

// Hide returns a message without its quotations from an answer, which may be secret. Names that are known stay.
func Hide(message string, known func(string) bool) string {
	return quotes.ReplaceAllStringFunc(message, func(quoted string) string {
		if name, err := strconv.Unquote(quoted); err == nil && known(name) {
			return quoted
		}
		return `"…"`
	})
}

// Plain returns a request's error without secrets.
func Plain(err error, within time.Duration) error {
	if e := new(url.Error); errors.As(err, &e) {
		err = e.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the server has not answered within %v", within)
	}
	if e := new(net.OpError); errors.As(err, &e) { // a redirect may have named the address
		err = e.Err
	}
	if e := new(net.DNSError); errors.As(err, &e) { // a redirect may have named the host
		return fmt.Errorf("the server's name cannot be resolved: %s", e.Err)
	}
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is { // its text has the certificate's names
		_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
		_, another := errors.AsType[x509.HostnameError](err)
		switch {
		case unknown:
			return errors.New("the server's certificate is of an unknown authority")
		case another:
			return errors.New("the server's certificate is for another name")
		}
		return errors.New("the server's certificate has expired or is not valid")
	}
	if _, is := errors.AsType[textproto.ProtocolError](err); is { // its text has lines of the answer
		return errors.New("the server's answer is not HTTP")
	}
	return errors.New(Hide(err.Error(), func(string) bool { return false }))
}

// Jitter returns d ± 20 %, so that nodes which start together do not poll together.
func Jitter(d time.Duration) time.Duration {
	return d*4/5 + rand.N(d*2/5+1) //nolint:gosec // spreads load
}

// maxRedirects bounds the redirects of a request.
const maxRedirects = 3

// Redirect is a CheckRedirect of http.Client. It allows a few redirects, none from https to http or to private addresses.
func Redirect(next *http.Request, via []*http.Request, otherOrigins bool) error {
	next.Header.Del("Referer") // its query can contain secrets
	switch same := next.URL.Scheme == via[0].URL.Scheme && next.URL.Host == via[0].URL.Host; {
	case len(via) > maxRedirects:
		return fmt.Errorf("the server redirects more than %d times", maxRedirects)
	case via[0].URL.Scheme == "https" && next.URL.Scheme != "https", via[len(via)-1].URL.Scheme == "https" && next.URL.Scheme != "https":
		return errors.New("the server redirects from https to http, which is not followed")
	case same:
		return nil
	case !otherOrigins:
		return errors.New("the server redirects to another origin, which is followed only with --remote-allow=other-origins")
	}
	if at, err := netip.ParseAddr(next.URL.Hostname()); err == nil && private(at) {
		return errPrivate
	}
	if proxy, _ := http.ProxyFromEnvironment(next); proxy == nil { // else the proxy resolves the name
		*next = *next.WithContext(context.WithValue(next.Context(), elsewhere{}, true))
	}
	return nil
}

// elsewhere marks the context of a redirect to another origin.
type elsewhere struct{}

var errPrivate = errors.New("the server redirects to a private address, which is not followed")

// reserved has the private and special networks that netip does not know. Most IPv6 ones carry IPv4 addresses.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("::/96"), netip.MustParsePrefix("fec0::/10"),
}

func private(at netip.Addr) bool {
	at = at.Unmap().WithZone("")
	return !at.IsGlobalUnicast() || at.IsPrivate() || slices.ContainsFunc(reserved, func(n netip.Prefix) bool { return n.Contains(at) })
}

// control is the ControlContext of net.Dialer. It sees the address that a redirect's name was resolved to.
func control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	if at, err := netip.ParseAddrPort(address); ctx.Value(elsewhere{}) != nil && (err != nil || private(at.Addr())) {
		return errPrivate
	}
	return nil
}

// Origin returns a URL for display, without user, password, query and fragment, which can contain secrets.
func Origin(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment, u.RawFragment, u.ForceQuery = nil, "", "", "", false
	return u.String()
}
