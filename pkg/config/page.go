package config

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const (
	maxPage     = 256 << 20 // bytes: 1,000 GPUs have some 40 MB
	pageTimeout = 30 * time.Second
)

// ReadPage reads and parses a page of metrics. name is its URL, a file, or - for stdin.
func ReadPage(ctx context.Context, name string, stdin io.Reader, trust *tls.Config) (map[string]*dto.MetricFamily, error) {
	shown := name // without a password
	if strings.Contains(name, "://") {
		u, err := url.Parse(name)
		if err != nil { // its text may hold a password
			return nil, errors.New("the address of a page is not a URL: write http://HOST:PORT/metrics")
		}
		shown = u.Redacted()
	}
	r, err := OpenPage(ctx, name, stdin, trust)
	if err != nil {
		return nil, fmt.Errorf("read page %q: %w", shown, err)
	}
	defer func() { _ = r.Close() }() // it was only read
	limited := &io.LimitedReader{R: r, N: maxPage}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(limited)
	switch {
	case limited.N <= 0:
		err = fmt.Errorf("more than %d MiB", maxPage>>20)
	case err == nil && len(families) == 0:
		err = errors.New("no metrics in it")
	case err != nil && strings.Contains(name, "://"):
		err = fmt.Errorf("%w; the address of a page is http://HOST:9400/metrics, for example", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read page %q: %w", shown, err)
	}
	return families, nil
}

// OpenPage opens a page without parsing it, as ReadPage does.
func OpenPage(ctx context.Context, name string, stdin io.Reader, trust *tls.Config) (io.ReadCloser, error) {
	switch {
	case name == "-":
		return io.NopCloser(stdin), nil
	case !strings.Contains(name, "://"):
		f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO without a writer is empty
		if _, _, bad := net.SplitHostPort(name); errors.Is(err, fs.ErrNotExist) && bad == nil {
			err = fmt.Errorf("there is no such file; write an address as http://%s/metrics", name)
		}
		return f, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, name, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	client := &http.Client{Timeout: pageTimeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok { // its text repeats the address
			err = wrapped.Err
		}
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 256)) // the server's own message, if any
		_ = resp.Body.Close()                                 // it was only read
		return nil, fmt.Errorf("the answer is %s", strings.TrimSpace(resp.Status+" "+string(text)))
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/html" || kind == "application/json" {
		_ = resp.Body.Close() // it is not read
		// The text of apiv1.ErrNoPage.
		return nil, errors.New("this is not a page of metrics, but a web site or another program")
	}
	return resp.Body, nil
}
