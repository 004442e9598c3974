package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
)

// maxSamples is the smallest number of rows that a ring holds: rows are accumulated once, after the last sample.
const maxSamples = 16

func onceCommand(a *exporter.Program) *cli.Command {
	return &cli.Command{
		Name:  "once",
		Usage: "Print the page of the exporter here, or sample every device and print one",
		Description: "Asks the exporter that runs on this machine, or the one at --url. If none answers, it opens\n" +
			"every enabled collector, samples each device, again for rates, which need two samples, and\n" +
			"makes the page itself. Standard error names the source, and GPUs that are not up.\n" +
			"Ends with code 1 if there is no device.",
		Flags: append([]cli.Flag{
			config.TimeoutFlag(10*time.Second, "Longest time to wait for libraries and devices."),
			&cli.StringFlag{Name: "format", Value: "text", Usage: "text or openmetrics."},
			&cli.IntFlag{Name: "samples", Value: 1, Usage: "Minimum number of samples to take here; histograms and event counts need several."},
		}, config.URLFlags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error { return showOnce(ctx, a, cmd) },
	}
}

// pageFormats are the values of --format.
var pageFormats = map[string]exposition.Format{"text": exposition.Text, "openmetrics": exposition.OpenMetrics}

var errNoDevice = errors.New("no device found; warpgauge devices says why")

func showOnce(ctx context.Context, a *exporter.Program, cmd *cli.Command) error {
	if err := config.NoArguments(cmd); err != nil {
		return err
	}
	cfg, err := a.Config()
	format, known := pageFormats[cmd.String("format")]
	switch samples, url := cmd.Int("samples"), cmd.String("url"); {
	case !known:
		return fmt.Errorf("--format is %q: write text or openmetrics", cmd.String("format"))
	case samples < 1 || samples > maxSamples:
		return fmt.Errorf("--samples is %d: write a number from 1 to %d", samples, maxSamples)
	case err != nil:
		return err
	case !cmd.IsSet("samples"):
		if asked, err := onceAsked(ctx, a, cmd, cfg, format); asked || err != nil {
			return err
		}
	case url != "" && url != NoURL:
		return errors.New("--samples samples the devices here, and --url asks an exporter: leave one out")
	}
	p, err := a.ReadHere(ctx, cfg)
	if err != nil {
		return err
	}
	return p.Sample(ctx, cmd.Duration("timeout"), func(ctx context.Context) error {
		p.AwaitValues(ctx, cmd.Int("samples"), cmd.Duration("timeout"))
		p.AddPages() // now that the own metrics know of the devices
		_, err := a.Out.Write(p.Renderer.Page(format, false))
		up, all := map[string]bool{}, p.Engine.Status()
		for _, c := range all {
			for _, d := range c.Devices {
				up[d.Device.ID] = up[d.Device.ID] || d.State == session.Up
			}
		}
		for _, c := range all {
			for _, d := range c.Devices {
				if d.Device.Level == field.GPU && !up[d.Device.ID] {
					up[d.Device.ID] = true // say it once
					noticeNotUp(a, d.Device.GPU, d.Device.ID, d.State.String(), d.Reason)
				}
			}
		}
		if err == nil && len(up) == 0 {
			err = errNoDevice
		}
		return err
	})
}

// noticeNotUp names a GPU whose values the page may lack.
func noticeNotUp(a *exporter.Program, gpu, id, state, reason string) {
	config.WriteNotice(a.Log, "warpgauge", "GPU %s (%s) is %s: %s", gpu, id, state, reason)
}

// onceAsked prints the page of a running exporter, if one is to be asked and answers.
func onceAsked(ctx context.Context, a *exporter.Program, cmd *cli.Command, cfg *config.Config, format exposition.Format) (bool, error) {
	var page bytes.Buffer
	var found *apiv1.Devices
	asked, err := Ask(ctx, a, cmd, cfg, func(ctx context.Context, c *apiv1.Client) (err error) {
		// Whatever listens at the usual port, and has pages: this is how to know that it is warpgauge.
		found, err = c.Devices(ctx)
		if err != nil && (cmd.String("url") == "" || !errors.Is(err, apiv1.ErrNoAPI)) {
			return err
		}
		return c.Page(ctx, format.ContentType(), &page)
	})
	if !asked || err != nil {
		return asked, err
	}
	_, err = a.Out.Write(bytes.Map(field.Printable, page.Bytes())) // it may be another machine's
	if found == nil || err != nil {
		return true, err
	}
	for _, d := range found.Devices {
		if d.Kind == field.GPU.String() && d.State != session.Up.String() {
			noticeNotUp(a, d.GPU, d.ID, d.Status.Word, d.Status.Why)
		}
	}
	if len(found.Devices) == 0 {
		err = errNoDevice
	}
	return true, err
}
