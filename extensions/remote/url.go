package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"warpgauge/extensions/remote/opamp"
	"warpgauge/extensions/remote/transport"
	"warpgauge/pkg/lists"
)

// URL polls a list on a web server.
type URL struct {
	url       *url.URL      // scheme http or https
	interval  time.Duration // between two requests, give or take a fifth
	maxBytes  int64         // of an answer
	userAgent string
	to        opamp.Desk
	client    *http.Client

	etag string // of the last delivered list; only Run uses it
}

// Times of a URL.
const (
	requestTimeout = time.Minute     // for a request and its answer
	slowest        = 5 * time.Minute // longest pause after failures, unless interval is longer
)

// newURL returns a URL. Only Run sends requests.
func newURL(u *url.URL, t http.RoundTripper, s *Settings, userAgent string, to opamp.Desk) *URL {
	others := slices.Contains(s.Allow, AllowOtherOrigins)
	redirect := func(next *http.Request, via []*http.Request) error { return transport.Redirect(next, via, others) }
	return &URL{url: u, interval: s.Interval, maxBytes: s.Limits.Bytes, userAgent: userAgent, to: to, client: &http.Client{Transport: t, CheckRedirect: redirect}}
}

// Run polls the server until ctx ends.
func (u *URL) Run(ctx context.Context) error {
	defer u.client.CloseIdleConnections()
	wait := u.interval / 10 // nodes that start together do not ask together
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(transport.Jitter(wait)):
		}
		err := u.ask(ctx)
		var busy *transport.ServerError
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			wait = u.interval
			continue
		case errors.As(err, &busy) && busy.After > 0:
			wait = max(u.interval, busy.After)
		default:
			wait = min(max(wait, u.interval)*2, max(slowest, u.interval))
		}
		u.to.Unreachable(err)
	}
}

// ask sends one request and delivers the list.
func (u *URL) ask(ctx context.Context) error {
	o, etag, err := u.fetch(ctx)
	if err != nil {
		return err
	}
	if o == nil {
		u.to.Answered()
		return nil
	}
	out := u.to.Deliver(ctx, o)
	if u.etag = etag; out.Err != nil {
		u.etag = "" // try again, because the cause can be on this node
	}
	return nil
}

// fetch returns the list, or nil if it has not changed.
func (u *URL) fetch(ctx context.Context) (o *lists.Offer, etag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.url.String(), nil)
	if err != nil {
		return nil, "", errors.New("the URL cannot be asked") // the original error can contain a password
	}
	request.Header.Set("Accept", "text/csv, application/yaml, text/plain, */*;q=0.1")
	request.Header.Set("Accept-Encoding", "identity")
	request.Header.Set("User-Agent", u.userAgent)
	if u.etag != "" {
		request.Header.Set("If-None-Match", u.etag)
	}
	answer, err := u.client.Do(request)
	if err != nil {
		return nil, "", transport.Plain(err, requestTimeout)
	}
	defer answer.Body.Close() //nolint:errcheck // the body was only read
	switch {
	case answer.StatusCode == http.StatusNotModified && u.etag != "":
		return nil, "", nil
	case answer.StatusCode != http.StatusOK:
		return nil, "", transport.Fault(answer)
	}
	if coding := answer.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return nil, "", errors.New("the answer has an encoding that was not asked for")
	}
	content, err := io.ReadAll(io.LimitReader(answer.Body, u.maxBytes+1))
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("read the answer: %w", transport.Plain(err, requestTimeout))
	case int64(len(content)) > u.maxBytes:
		return nil, "", fmt.Errorf("the answer has more than %d bytes (--remote-limit bytes)", u.maxBytes)
	}
	if err := whole(answer, content); err != nil {
		return nil, "", err
	}
	etag = printable(answer.Header.Get("ETag"))
	return &lists.Offer{
		Origin: transport.Origin(u.url.String()), Revision: revision(etag, answer.Header.Get("Last-Modified")), Content: content, YAML: isYAML(answer),
	}, etag, nil
}

// whole returns an error if an answer may have been cut or changed.
func whole(a *http.Response, content []byte) error {
	if !bytes.HasSuffix(content, []byte("\n")) {
		return errors.New("the answer does not end with a whole line")
	}
	sum := sha256.Sum256(content)
	want := "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
	digests := slices.Concat(a.Header["Repr-Digest"], a.Header["Content-Digest"], a.Trailer["Repr-Digest"], a.Trailer["Content-Digest"])
	for _, d := range digests {
		if strings.Contains(d, "sha-256=:") && !strings.Contains(d, want) {
			return errors.New("the answer has another SHA-256 than its digest says")
		}
	}
	missing := len(a.Header["Trailer"]) > 0 // Go leaves it there if the answer can have no trailers
	for _, values := range a.Trailer {
		missing = missing || values == nil
	}
	digests = slices.Concat(digests, a.Header["Digest"], a.Header["Content-Md5"], a.Header["X-Goog-Hash"])
	endless := a.ContentLength < 0 && len(a.TransferEncoding) == 0 && a.ProtoMajor < 2
	if missing || endless && len(digests) > 0 {
		return errors.New("the answer lacks a promised trailer, or has a digest and no length: it may be cut")
	}
	return nil
}

// maxHeader bounds the stored header values, in bytes.
const maxHeader = 256

// printable returns a header value if it is safe to send back and show, else "".
func printable(s string) string {
	if len(s) > maxHeader || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return s
}

// revision returns the server's version of the list.
func revision(etag, modified string) string {
	if t, err := http.ParseTime(modified); etag == "" && err == nil {
		return t.UTC().Format(time.RFC3339)
	}
	return strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
}

// isYAML decides by the content type, or else by the file name.
func isYAML(a *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type")) // an invalid type counts as none
	if strings.HasSuffix(kind, "yaml") {
		return true
	}
	extension := path.Ext(a.Request.URL.Path)
	return kind != "text/csv" && (extension == ".yaml" || extension == ".yml")
}
