package apiv1

import (
	"bytes"
	"cmp"
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

// Errors for callers to distinguish.
var (
	// ErrNoAnswer means that nothing at the address answers HTTP in time.
	ErrNoAnswer = errors.New("no exporter answers")
	// ErrNoAPI means that the server lacks this API: an older exporter, one with the API switched off, or another program.
	ErrNoAPI = errors.New("it has no JSON API: it is an older version or another program, or the API is switched off")
	// ErrNoPage means that the server sends HTML or JSON instead of metrics.
	ErrNoPage = errors.New("this is not a page of metrics, but a web site or another program")
)

const (
	dialTimeout      = 3 * time.Second
	answerTimeout    = 15 * time.Second // from the request to the last byte of an answer
	maxReceived      = 64 << 20         // bytes of JSON
	maxPageReceived  = 256 << 20        // bytes of /metrics: 1,000 GPUs take about 40 MB
	maxErrorReceived = 4 << 10          // bytes of an error answer
	jsonType         = "application/json"
)

// A Client sends requests to one exporter. It is safe for concurrent use.
type Client struct {
	base  *url.URL // without user and password
	user  *url.Userinfo
	agent string
	http  *http.Client
}

// ClientOptions are the options that an address cannot express.
type ClientOptions struct {
	TLS       *tls.Config // nil: the system's certificate authorities
	UserAgent string      // "warpgauge/VERSION"
}

// NewClient accepts http://HOST:PORT, https://HOST:PORT and HOST:PORT, which means http.
// USER:PASSWORD@ before the host enables basic auth. A path prefix is kept; a trailing /metrics is
// removed.
func NewClient(address string, o ClientOptions) (*Client, error) {
	text := address
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil { // the error's text can contain the password
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
		TLSClientConfig:   o.TLS.Clone(), // the transport modifies it
		ForceAttemptHTTP2: true,
		IdleConnTimeout:   time.Minute,
	}}}, nil
}

// URL returns the address without user and password.
func (c *Client) URL() string { return c.base.String() }

// Devices returns all devices and collectors.
func (c *Client) Devices(ctx context.Context) (*Devices, error) {
	d, err := ask[Devices](ctx, c, "devices", nil)
	if err == nil && d.Time.IsZero() && d.Collectors == nil && d.Devices == nil { // JSON from another program
		return nil, c.errorf("%w", ErrNoAPI)
	}
	return d, err
}

// Fields returns the fields that match a pattern on some devices. No devices or no patterns means all.
func (c *Client) Fields(ctx context.Context, devices, patterns []string) (*Fields, error) {
	return ask[Fields](ctx, c, "fields", url.Values{"device": devices, "field": patterns})
}

// Health returns the verdict on each device.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	return ask[Health](ctx, c, "health", nil)
}

// List returns the field list in service.
func (c *Client) List(ctx context.Context) (*List, error) {
	return ask[List](ctx, c, "list", nil)
}

// Events returns at most limit events since a time; 0 means no limit.
func (c *Client) Events(ctx context.Context, since time.Time, limit int) (*Events, error) {
	return ask[Events](ctx, c, "events", query(since, "limit", limit))
}

// SamplesQuery selects the samples for Samples. A zero Since means the exporter's oldest
// sample. Without Points it selects every sample.
type SamplesQuery struct {
	Device, Field string
	Since         time.Time
	Points        int
}

// Samples returns the samples of a device's field.
func (c *Client) Samples(ctx context.Context, s SamplesQuery) (*Samples, error) {
	q := query(s.Since, "points", s.Points)
	q.Set("device", s.Device)
	q.Set("field", s.Field)
	return ask[Samples](ctx, c, "samples", q)
}

// query returns parameters for a time and a number. It omits zero values.
func query(since time.Time, name string, n int) url.Values {
	q := url.Values{}
	if !since.IsZero() {
		q.Set("since", since.UTC().Format(time.RFC3339Nano))
	}
	if n > 0 {
		q.Set(name, strconv.Itoa(n))
	}
	return q
}

// Page copies /metrics to w, in the first supported format. accept is an HTTP Accept header.
func (c *Client) Page(ctx context.Context, accept string, w io.Writer) error {
	return c.get(ctx, "metrics", nil, accept, maxPageReceived, func(body io.Reader) error {
		_, err := io.Copy(w, body)
		return err
	})
}

// ask requests /api/v1/NAME.
func ask[T any](ctx context.Context, c *Client, name string, q url.Values) (*T, error) {
	out := new(T)
	if err := c.Get(ctx, name, q, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Get decodes the answer of /api/v1/NAME. If the server answers 404 with a Problem, the error is an fs.ErrNotExist.
func (c *Client) Get(ctx context.Context, name string, q url.Values, out any) error {
	return c.get(ctx, "api/v1/"+name, q, jsonType, maxReceived, func(body io.Reader) error {
		if err := json.NewDecoder(body).Decode(out); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, body) // read to the end, so that the connection can be reused
		return err
	})
}

// get calls read with the body of a 200 answer, which has at most limit bytes.
func (c *Client) get(ctx context.Context, path string, q url.Values, accept string, limit int64, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	u := c.base.JoinPath(path)
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", c.agent)
	if c.user != nil {
		password, _ := c.user.Password()
		req.SetBasicAuth(c.user.Username(), password)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unanswered(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }() // the body was only read
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch asksJSON := accept == jsonType; {
	case resp.StatusCode != http.StatusOK:
		return c.refused(resp)
	case asksJSON && kind == "text/html":
		return c.errorf("%w", ErrNoAPI)
	case !asksJSON && (kind == "text/html" || kind == jsonType): // some web servers serve one page for every path
		return c.errorf("/%s: %w", path, ErrNoPage)
	}
	body := &io.LimitedReader{R: resp.Body, N: limit + 1}
	err = read(body)
	if body.N == 0 {
		err = fmt.Errorf("more than %d MiB", limit>>20)
	}
	if err != nil {
		return c.errorf("read /%s: %w", path, err)
	}
	return nil
}

// unanswered returns a short error for a failed request.
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

// refused converts an error answer to an error.
func (c *Client) refused(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorReceived)) // a partial body is enough
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	var p Problem
	if kind == "application/problem+json" && json.Unmarshal(text, &p) == nil && p.Title+p.Detail != "" {
		p.Status, p.Detail = resp.StatusCode, cmp.Or(p.Detail, p.Title)
		return c.errorf("%w (%s)", &p, resp.Status)
	}
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized && c.user != nil:
		return c.errorf("it refuses the user name or the password")
	case code == http.StatusUnauthorized:
		return c.errorf("it wants a user name and a password: write %s://USER:PASSWORD@%s", c.base.Scheme, c.base.Host)
	case code == http.StatusNotFound:
		return c.errorf("%w", ErrNoAPI)
	case code == http.StatusBadRequest && c.base.Scheme == "http" && bytes.Contains(text, []byte("HTTPS server")):
		return c.errorf("it uses TLS: write https:// in place of http://")
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if line == "" || !strings.HasPrefix(kind, "text/plain") {
		return c.errorf("it answers %s", resp.Status)
	}
	return c.errorf("%s (%s)", line, resp.Status)
}

// errorf returns an error that names the exporter.
func (c *Client) errorf(format string, args ...any) error {
	return fmt.Errorf("exporter at %s: "+format, append([]any{c.base}, args...)...)
}
