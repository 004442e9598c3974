package apiv1

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Callers branch on these.
var (
	// ErrNoAnswer means that nothing at the address answers HTTP requests in time.
	ErrNoAnswer = errors.New("no exporter answers")
	// ErrNoAPI means that what answers does not have this API: an older exporter, one
	// that has it switched off, or another program.
	ErrNoAPI = errors.New("it has no JSON API: it is an older version or another program, or the API is switched off")
	// ErrNoPage means that what answers has HTML or JSON in the place of metrics.
	ErrNoPage = errors.New("it is no page of metrics: it is a web site or another program")
)

const (
	dialTimeout      = 3 * time.Second
	answerTimeout    = 15 * time.Second // from the request to the last byte of an answer
	maxReceived      = 64 << 20         // bytes of JSON
	maxPageReceived  = 256 << 20        // bytes of /metrics: 1,000 GPUs have some 40 MB
	maxErrorReceived = 4 << 10          // bytes of an answer that is an error
	jsonType         = "application/json"
)

// A Client asks one exporter. Its methods may be called from any goroutine.
type Client struct {
	base  *url.URL // without user and password
	user  *url.Userinfo
	agent string
	http  *http.Client
}

// ClientOptions has the options that an address cannot express.
type ClientOptions struct {
	TLS       *tls.Config // nil: the system's certificate authorities
	UserAgent string      // "warpgauge/VERSION"
}

// NewClient takes http://HOST:PORT or https://HOST:PORT, with USER:PASSWORD@ in front of
// the host for basic auth, and HOST:PORT, which means http. A path in front of the
// exporter's own stays, and /metrics at the end is left out.
func NewClient(address string, o ClientOptions) (*Client, error) {
	text := address
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil { // its text may have a password
		return nil, errors.New("the exporter's address is not a URL: write http://HOST:PORT or https://HOST:PORT")
	}
	if u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("the exporter's address is %q: write http://HOST:PORT or https://HOST:PORT", u.Redacted())
	}
	if u.Hostname() == "" {
		u.Host = "localhost" + u.Host
	}
	user := u.User
	u = &url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/metrics")}
	return &Client{base: u, user: user, agent: o.UserAgent, http: &http.Client{Transport: &http.Transport{
		Proxy:             http.ProxyFromEnvironment,
		DialContext:       (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSClientConfig:   o.TLS.Clone(), // the transport writes to it
		ForceAttemptHTTP2: true,
		IdleConnTimeout:   time.Minute,
	}}}, nil
}

// URL is the address without user and password, for people.
func (c *Client) URL() string { return c.base.String() }

// Devices asks for all devices and collectors.
func (c *Client) Devices(ctx context.Context) (*Devices, error) {
	d, err := ask[Devices](ctx, c, "devices", nil)
	if err == nil && d.Time.IsZero() && d.Collectors == nil && d.Devices == nil { // JSON of another program
		return nil, c.errorf("%w", ErrNoAPI)
	}
	return d, err
}

// Fields asks for the fields of some devices, all if there are none, whose names match
// one of the patterns, all if there are none.
func (c *Client) Fields(ctx context.Context, devices, patterns []string) (*Fields, error) {
	return ask[Fields](ctx, c, "fields", url.Values{"device": devices, "field": patterns})
}

// Health asks for the verdict on each device.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	return ask[Health](ctx, c, "health", nil)
}

// List asks for the field list in service.
func (c *Client) List(ctx context.Context) (*List, error) {
	return ask[List](ctx, c, "list", nil)
}

// Events asks for at most limit events since a time. Zero is without a limit.
func (c *Client) Events(ctx context.Context, since time.Time, limit int) (*Events, error) {
	q := url.Values{}
	setTime(q, "since", since)
	setNumber(q, "limit", limit)
	return ask[Events](ctx, c, "events", q)
}

// SamplesQuery says which samples Samples asks for. Times that are zero are those of
// the exporter: as far back as it has them, and now. Without Points it asks for every sample.
type SamplesQuery struct {
	Device, Field string
	Since, Until  time.Time
	Points        int
}

// Samples asks for the samples of a device's field.
func (c *Client) Samples(ctx context.Context, s SamplesQuery) (*Samples, error) {
	q := url.Values{"device": {s.Device}, "field": {s.Field}}
	setTime(q, "since", s.Since)
	setTime(q, "until", s.Until)
	setNumber(q, "points", s.Points)
	return ask[Samples](ctx, c, "samples", q)
}

func setTime(q url.Values, name string, t time.Time) {
	if !t.IsZero() {
		q.Set(name, t.UTC().Format(time.RFC3339Nano))
	}
}

func setNumber(q url.Values, name string, n int) {
	if n > 0 {
		q.Set(name, strconv.Itoa(n))
	}
}

// Page copies /metrics to w, in the first of the formats that the exporter has. accept is as in HTTP.
func (c *Client) Page(ctx context.Context, accept string, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	body, err := c.get(ctx, "metrics", nil, accept)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // it was only read
	n, err := io.Copy(w, io.LimitReader(body, maxPageReceived+1))
	if n > maxPageReceived {
		err = fmt.Errorf("more than %d MiB", maxPageReceived>>20)
	}
	if err != nil {
		return c.errorf("read /metrics: %w", err)
	}
	return nil
}

// ask asks for /api/v1/NAME.
func ask[T any](ctx context.Context, c *Client, name string, q url.Values) (*T, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	body, err := c.get(ctx, "api/v1/"+name, q, jsonType)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // it was only read
	out := new(T)
	limited := &io.LimitedReader{R: body, N: maxReceived + 1}
	err = json.NewDecoder(limited).Decode(out)
	if err == nil {
		_, err = io.Copy(io.Discard, limited) // to its end, so that the connection can be used again
	}
	if limited.N == 0 {
		err = fmt.Errorf("more than %d MiB", maxReceived>>20)
	}
	if err != nil {
		return nil, c.errorf("read /api/v1/%s: %w", name, err)
	}
	return out, nil
}

// get returns the body of an answer with code 200, or why there is none.
func (c *Client) get(ctx context.Context, path string, q url.Values, accept string) (io.ReadCloser, error) {
	u := c.base.JoinPath(path)
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", c.agent)
	if c.user != nil {
		password, _ := c.user.Password()
		req.SetBasicAuth(c.user.Username(), password)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unanswered(ctx, err)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && kind != "text/html" && (kind != jsonType || accept == jsonType) {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	switch {
	case resp.StatusCode != http.StatusOK:
	case accept == jsonType:
		return nil, c.errorf("%w", ErrNoAPI)
	default: // a web server may have the same page for all paths
		return nil, c.errorf("/%s: %w", path, ErrNoPage)
	}
	return nil, c.refused(resp)
}

// unanswered says in few words why there is no answer.
func (c *Client) unanswered(ctx context.Context, err error) error {
	var wrapped *url.Error // its text repeats the address
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var untrusted *tls.CertificateVerificationError
	var dns *net.DNSError
	var errno syscall.Errno
	switch {
	case errors.As(err, &untrusted):
		return c.errorf("its certificate is not trusted: %w", untrusted.Err)
	case c.base.Scheme == "https" && strings.Contains(err.Error(), "server gave HTTP response"):
		return c.errorf("it does not use TLS: write http:// in place of https://")
	case errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		err = errors.New("it takes too long")
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.As(err, &dns):
		err = fmt.Errorf("host %q: %s", dns.Name, dns.Err)
	case errors.As(err, &errno):
		err = errno
	}
	return fmt.Errorf("%w at %s: %w", ErrNoAnswer, c.base, err)
}

// refused makes an error of an answer that is one.
func (c *Client) refused(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorReceived)) // what came says enough
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	var p Problem
	if kind == "application/problem+json" && json.Unmarshal(text, &p) == nil && p.Title+p.Detail != "" {
		if p.Detail == "" {
			p.Detail = p.Title
		}
		return c.errorf("%s (%s)", p.Detail, resp.Status)
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		if c.user != nil {
			return c.errorf("it refuses the user name or the password")
		}
		return c.errorf("it wants a user name and a password: write %s://USER:PASSWORD@%s", c.base.Scheme, c.base.Host)
	case http.StatusNotFound:
		return c.errorf("%w", ErrNoAPI)
	case http.StatusBadRequest:
		if c.base.Scheme == "http" && bytes.Contains(text, []byte("HTTPS server")) {
			return c.errorf("it uses TLS: write https:// in place of http://")
		}
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if line == "" || !strings.HasPrefix(kind, "text/plain") {
		return c.errorf("it answers %s", resp.Status)
	}
	return c.errorf("%s (%s)", line, resp.Status)
}

// errorf names the exporter.
func (c *Client) errorf(format string, args ...any) error {
	return fmt.Errorf("exporter at %s: "+format, append([]any{c.base}, args...)...)
}
