package config

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/urfave/cli/v3"

	"warpgauge/pkg/file"
)

// TrustFlags are --ca-file and --insecure: how a command checks an exporter's certificate.
func TrustFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "ca-file", Usage: "PEM file of the certificate authorities to trust. Default: the system's."},
		&cli.BoolFlag{Name: "insecure", Usage: "Do not verify the exporter's certificate."},
	}
}

// URLFlags are --url and TrustFlags, for a command that asks the running exporter.
func URLFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "url", Usage: "Exporter to ask: http://HOST:PORT or https://USER:PASSWORD@HOST:PORT; none reads the devices here. " +
			"Default: the one at --address of this machine; none if the command line has flags that say what to read."},
	}, TrustFlags()...)
}

// LocalURL returns the URL for clients on this machine of an exporter that listens on an address; "" if the address
// does not give one.
func LocalURL(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "0" {
		return ""
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Trust returns the settings of TrustFlags, or nil if none is set.
func Trust(ctx context.Context, cmd *cli.Command) (*tls.Config, error) {
	if cmd.Bool("insecure") {
		return &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, nil //nolint:gosec // the user chose it
	}
	path := cmd.String("ca-file")
	if path == "" {
		return nil, nil
	}
	text, err := file.NewReader(1<<20).Read(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	out := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	if !out.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--ca-file: %q has no certificate in PEM", path)
	}
	return out, nil
}

// TimeoutFlag is --timeout, which must be above 0.
func TimeoutFlag(value time.Duration, usage string) cli.Flag {
	return &cli.DurationFlag{
		Name: "timeout", Value: value, Usage: usage,
		Validator: func(d time.Duration) error {
			if d <= 0 {
				return errors.New("write a duration above 0")
			}
			return nil
		},
	}
}
