package live

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/urfave/cli/v3"

	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
)

// NoURL makes a command read the devices itself.
const NoURL = "none"

// Client returns a client for the exporter in config.URLFlags, by default the one on this machine.
func Client(ctx context.Context, a *exporter.Program, cmd *cli.Command, cfg *config.Config) (*apiv1.Client, error) {
	address := cmp.Or(cmd.String("url"), config.LocalURL(cfg.Web.Address))
	if address == "" || address == NoURL {
		return nil, errors.New("name the exporter with --url")
	}
	trust, err := config.Trust(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return apiv1.NewClient(address, apiv1.ClientOptions{TLS: trust, UserAgent: "warpgauge/" + a.Build.Version})
}

// Ask calls f with the command's exporter and reports whether the exporter answered. If it did not, and the user named none,
// the command must read the devices itself. Ask prints which of the two it was to standard error.
func Ask(ctx context.Context, a *exporter.Program, cmd *cli.Command, cfg *config.Config, f func(context.Context, *apiv1.Client) error) (bool, error) {
	url := cmd.String("url")
	switch here := readsHere(a, cfg); {
	case url == NoURL || url == "" && here == "" && config.LocalURL(cfg.Web.Address) == "":
		return false, nil
	case url == "" && here != "":
		config.WriteNotice(a.Log, "warpgauge", "%s is set, so the devices are read here", here)
		return false, nil
	}
	c, err := Client(ctx, a, cmd, cfg)
	if err != nil {
		return false, err
	}
	within, cancel := context.WithTimeout(ctx, cmd.Duration("timeout"))
	defer cancel()
	switch err := f(within, c); {
	case err == nil:
		config.WriteNotice(a.Log, "warpgauge", "asked the exporter at %s", c.URL())
		return true, nil
	case url != "" || errors.Is(ctx.Err(), context.Canceled):
		return false, err
	default:
		config.WriteNotice(a.Log, "warpgauge", "%v, so the devices are read here", err)
		return false, nil
	}
}

// readsHere returns a command-line flag that selects what to read, which a running exporter cannot know, or "".
// Environment variables do not count: in a container they belong to the exporter.
func readsHere(a *exporter.Program, cfg *config.Config) string {
	for _, f := range a.Flags.Flags() {
		if f.Group != config.GroupWeb && f.Group != config.GroupLogging && cfg.Source(f.Name) == config.FromCommandLine {
			return config.Dashed(f.Name)
		}
	}
	return ""
}

// answers is an exporter, or the devices read in this process.
type answers interface {
	Devices(context.Context) (*apiv1.Devices, error)
	Fields(ctx context.Context, devices, patterns []string) (*apiv1.Fields, error)
}

// askOrRead calls f with the command's exporter. Without an exporter it reads the devices itself and passes those and
// their pipeline.
func askOrRead(ctx context.Context, a *exporter.Program, cmd *cli.Command, f func(context.Context, answers, *exporter.Pipeline) error) error {
	cfg, err := a.Config()
	if err != nil {
		return err
	}
	if asked, err := Ask(ctx, a, cmd, cfg, func(ctx context.Context, c *apiv1.Client) error { return f(ctx, c, nil) }); asked || err != nil {
		return err
	}
	p, err := a.ReadHere(ctx, cfg)
	if err != nil {
		return err
	}
	return p.Sample(ctx, cmd.Duration("timeout"), func(ctx context.Context) error {
		p.AddPages()
		c := p.Core()
		o := optionsOf(&c)
		o.Lists = nil // none is in service: the sources' list counts
		return f(ctx, here{p, api.New(o)}, p)
	})
}

// here implements answers with a Pipeline in this process.
type here struct {
	*exporter.Pipeline
	api *api.API
}

// Devices implements answers.
func (h here) Devices(context.Context) (*apiv1.Devices, error) { return h.api.Devices(), nil }

// Fields implements answers. It waits for fields that need several samples.
func (h here) Fields(ctx context.Context, devices, patterns []string) (*apiv1.Fields, error) {
	h.AwaitValues(ctx, 1, exporter.ValuesPatience)
	h.Sync(time.Now())
	return h.api.Fields(devices, patterns)
}
