package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/time/rate"

	"warpgauge/pkg/file"
)

// WebConfig serves a web configuration file of exporter-toolkit from a checked copy. exporter-toolkit itself reads the file, and
// those that it names, for each handshake and request, without a limit of size or time. A WebConfig reads them every few
// seconds, never for a client. If they cannot be read or are wrong, the previous copy stays in use. A nil WebConfig has no file.
type WebConfig struct {
	path   string
	files  *file.Reader
	log    *zap.Logger
	warn   rate.Sometimes
	logins *logins
	limit  *rate.Limiter // nil: none
	now    atomic.Pointer[webCopy]
}

// webCopy is the content of the file, with those that it names.
type webCopy struct {
	web.Config
	tls *tls.Config // nil: no TLS
	sum [sha256.Size]byte
}

const (
	maxWebConfig   = 1 << 20 // bytes of each file
	webConfigEvery = 5 * time.Second
)

// ReadWebConfig reads and checks a file; "" is none.
func ReadWebConfig(path string, log *zap.Logger) (*WebConfig, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // a nil WebConfig has no file
	}
	c := &WebConfig{path: path, files: file.NewReader(maxWebConfig), log: log, warn: rate.Sometimes{Interval: warnEvery}}
	now, err := c.read()
	if err == nil {
		err = web.Validate(path) // the names of headers, too
	}
	if err != nil {
		return nil, fmt.Errorf("read web config file %q: %w", path, err)
	}
	c.now.Store(now)
	c.logins = newLogins(nil, log)
	if l := now.RateLimiterConfig; l.Interval != 0 {
		c.limit = rate.NewLimiter(rate.Every(l.Interval), l.Burst)
	}
	return c, nil
}

// TLS reports whether the file enables TLS.
func (c *WebConfig) TLS() bool { return c != nil && c.now.Load().tls != nil }

// KnowsClients reports whether the file demands a certificate or a password.
func (c *WebConfig) KnowsClients() bool { return c != nil && c.now.Load().knowsClients() }

func (c *webCopy) knowsClients() bool {
	return len(c.Users) > 0 || c.tls != nil && c.tls.ClientAuth == tls.RequireAndVerifyClientCert
}

// read reads and checks the files.
func (c *WebConfig) read() (*webCopy, error) {
	text, err := c.files.Read(context.Background(), c.path)
	if err != nil {
		return nil, err
	}
	out, sum := &webCopy{}, sha256.New()
	_, _ = sum.Write(text) // a hash has no errors
	out.HTTPConfig.HTTP2 = true
	t := &out.TLSConfig
	t.MinVersion, t.MaxVersion = tls.VersionTLS12, tls.VersionTLS13
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&out.Config); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for _, user := range slices.Sorted(maps.Keys(out.Users)) {
		if _, err := bcrypt.Cost([]byte(out.Users[user])); err != nil {
			return nil, fmt.Errorf("the password of user %q is not a hash of bcrypt (htpasswd -nB makes one): %w", user, err)
		}
	}
	if out.sum = [sha256.Size]byte(sum.Sum(nil)); !t.IsEnabled() {
		return out, nil
	}
	t.SetDirectory(filepath.Dir(c.path))
	for _, f := range []struct{ path, text *string }{{&t.TLSCertPath, &t.TLSCert}, {&t.TLSKeyPath, (*string)(&t.TLSKey)}, {&t.ClientCAs, &t.ClientCAsText}} {
		if *f.path == "" {
			continue
		}
		text, err := c.files.Read(context.Background(), *f.path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // exporter-toolkit reports it
			continue
		case err != nil:
			return nil, err
		}
		*f.path, *f.text = "", string(text)
		_, _ = sum.Write(text)
	}
	if out.tls, err = web.ConfigToTLSConfig(t); err != nil {
		return nil, err
	}
	certificate, err := out.tls.GetCertificate(nil)
	if err != nil {
		return nil, err
	}
	out.tls.Certificates, out.tls.GetCertificate = []tls.Certificate{*certificate}, nil
	out.tls.NextProtos = []string{"h2", "http/1.1"}
	if !out.HTTPConfig.HTTP2 {
		out.tls.NextProtos = out.tls.NextProtos[1:]
	}
	out.sum = [sha256.Size]byte(sum.Sum(nil))
	return out, nil
}

// refresh reads the files. It uses their content if the previous reading, whose sum it takes, has found the same: content that has
// just appeared may be half written, without the users. It returns the sum of this reading.
func (c *WebConfig) refresh(before [sha256.Size]byte) [sha256.Size]byte {
	next, err := c.read()
	if err == nil && (c.KnowsClients() && !next.knowsClients() || c.TLS() && next.tls == nil) { // it may have been emptied
		err = errors.New("it no longer demands a password or a client certificate, or has no TLS: only a restart takes such a file")
	}
	if err != nil {
		c.warn.Do(func() {
			c.log.Warn("cannot use the web config file; the previous content stays in use", zap.String("path", c.path), zap.Error(err))
		})
		return [sha256.Size]byte{}
	}
	if next.sum == before && next.sum != c.now.Load().sum {
		c.now.Store(next)
		c.log.Info("using the new content of the web config file", zap.String("path", c.path))
	}
	return next.sum
}

// Serve serves a listener as the file says, until the server is shut down.
func (c *WebConfig) Serve(srv *http.Server, l net.Listener) error {
	if c == nil {
		return srv.Serve(l)
	}
	tick := time.NewTicker(webConfigEvery)
	defer tick.Stop()
	done := make(chan struct{})
	defer c.logins.save()
	defer close(done)
	go func() {
		var sum [sha256.Size]byte
		for {
			select {
			case <-tick.C:
				sum = c.refresh(sum)
				c.logins.save()
			case <-done:
				return
			}
		}
	}()
	srv.Handler = c.handler(srv.Handler)
	now := c.now.Load()
	if now.tls == nil {
		return srv.Serve(l)
	}
	if !now.HTTPConfig.HTTP2 {
		srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	}
	srv.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return c.now.Load().tls, nil
	}}
	return srv.ServeTLS(l, "", "")
}

// handler applies limit, headers and users of the file.
func (c *WebConfig) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := c.now.Load()
		if c.limit != nil && !c.limit.Allow() {
			writeText(w, http.StatusTooManyRequests, "too many requests\n")
			return
		}
		for name, value := range now.HTTPConfig.Header {
			w.Header().Set(name, value)
		}
		if len(now.Users) > 0 && !c.logins.pass(w, r, now.Users) {
			return
		}
		next.ServeHTTP(w, r)
	})
}
