package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"
	"golang.org/x/net/netutil"
)

// Listen checks the web config file and opens the listening sockets, so that
// what a person must put right shows before anything else has started. Run
// calls it if that has not been done; after Listen, only Run closes the
// sockets. Clients that connect before Run are answered when it runs.
func (s *Server) Listen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listeners != nil {
		return nil
	}
	tls, err := readWebConfig(s.o.WebConfigFile)
	if err != nil {
		return err
	}
	var open []net.Listener
	if s.o.SystemdSocket {
		open, err = systemdListeners()
	} else {
		open, err = listen(ctx, s.o.Addresses)
	}
	if err != nil {
		return err
	}
	s.tls = tls
	for _, l := range open {
		s.listeners = append(s.listeners, netutil.LimitListener(l, s.conns.slots()))
	}
	return nil
}

// listen opens all or none.
func listen(ctx context.Context, addresses []string) ([]net.Listener, error) {
	var (
		lc   net.ListenConfig
		open []net.Listener
	)
	for _, a := range addresses {
		l, err := lc.Listen(ctx, "tcp", a)
		if err != nil {
			closeAll(open)
			return nil, listenError(a, err)
		}
		open = append(open, l)
	}
	return open, nil
}

// listenError says what to do about the errors that are met in practice.
func listenError(address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listen on %s: %w; another exporter (dcgm-exporter?) may be running, choose another with --address",
			address, syscall.EADDRINUSE)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("listen on %s: %w; ports below 1024 are for root or CAP_NET_BIND_SERVICE, choose another with --address",
			address, syscall.EACCES)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("listen on %s: %w; this machine has no such address, choose another with --address",
			address, syscall.EADDRNOTAVAIL)
	default:
		return fmt.Errorf("listen on %s: %w", address, err)
	}
}

func systemdListeners() ([]net.Listener, error) {
	passed, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("take sockets from systemd: %w", err)
	}
	var open []net.Listener
	for _, l := range passed {
		if l != nil { // a socket that is no stream
			open = append(open, l)
		}
	}
	if len(open) == 0 {
		return nil, errors.New("take sockets from systemd: none was passed; start through a .socket unit or leave out --web-systemd-socket")
	}
	return open, nil
}

func closeAll(ls []net.Listener) {
	for _, l := range ls {
		_ = l.Close() // closed on the way out of an error
	}
}

// readWebConfig checks the file as exporter-toolkit will read it, certificates
// and password hashes included, and reports whether it switches TLS on.
func readWebConfig(file string) (tls bool, err error) {
	if file == "" {
		return false, nil
	}
	if err := web.Validate(file); err != nil {
		return false, fmt.Errorf("read web config file %q: %w", file, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return false, fmt.Errorf("read web config file %q: %w", file, err)
	}
	var c web.Config
	if err := yaml.Unmarshal(text, &c); err != nil {
		return false, fmt.Errorf("read web config file %q: %w", file, err)
	}
	c.TLSConfig.SetDirectory(filepath.Dir(file))
	// The file is valid, so the only error left is that it has no TLS in it.
	_, err = web.ConfigToTLSConfig(&c.TLSConfig)
	return err == nil, nil
}
