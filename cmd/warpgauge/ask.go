package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"

	"warpgauge/pkg/exporter"

	"github.com/urfave/cli/v3"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/cmdline"
	"warpgauge/pkg/config"
)

// noURL has a command read the devices itself.
const noURL = "none"

// urlFlags say which exporter a command asks, and how it trusts it.
func urlFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "url", Usage: "Exporter to ask: http://HOST:PORT or https://USER:PASSWORD@HOST:PORT; none reads the devices here. " +
			"Default: the one at --address of this machine; none if the command line has flags that say what to read."},
	}, cmdline.TrustFlags()...)
}

// clientOf returns the client of the exporter at an address, with the settings of urlFlags.
func clientOf(ctx context.Context, a *exporter.Program, cmd *cli.Command, address string) (*apiv1.Client, error) {
	trust, err := cmdline.Trust(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return apiv1.NewClient(address, apiv1.ClientOptions{TLS: trust, UserAgent: "warpgauge/" + a.Build.Version})
}

// asksExporter calls f with the exporter that the command should ask, and reports whether that
// has answered. If it has not, and no exporter was named, the command reads the devices
// itself. Standard error says which it was.
func asksExporter(ctx context.Context, a *exporter.Program, cmd *cli.Command, cfg *config.Config, f func(context.Context, *apiv1.Client) error) (bool, error) {
	address := cmd.String("url")
	named := address != ""
	switch local, here := localURL(cfg.Web.Address), readsHere(a, cfg); {
	case address == noURL:
		return false, nil
	case !named && here != "":
		cmdline.Notice(a.Log, "warpgauge", "%s is set, so the devices are read here", here)
		return false, nil
	case !named && local == "":
		return false, nil
	default:
		address = cmp.Or(address, local)
	}
	c, err := clientOf(ctx, a, cmd, address)
	if err == nil {
		within, cancel := context.WithTimeout(ctx, cmd.Duration("timeout"))
		defer cancel()
		err = f(within, c)
	}
	switch {
	case err == nil:
		cmdline.Notice(a.Log, "warpgauge", "asked the exporter at %s", c.URL())
		return true, nil
	case named || c == nil || errors.Is(ctx.Err(), context.Canceled):
		return false, err
	}
	cmdline.Notice(a.Log, "warpgauge", "%v, so the devices are read here", err)
	return false, nil
}

// readsHere names a flag of the command line that says what to read, which a running
// exporter knows nothing of; "" if there is none. Variables do not count: in a container they are the exporter's.
func readsHere(a *exporter.Program, cfg *config.Config) string {
	for _, f := range a.Flags.Flags() {
		if f.Group != config.GroupWeb && f.Group != config.GroupLogging && cfg.Source(f.Name) == config.FromCommandLine {
			return config.Dashed(f.Name)
		}
	}
	return ""
}

// localURL is where a client on this machine finds the exporter that listens on an
// address; "" if that does not say it.
func localURL(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "0" {
		return ""
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}
