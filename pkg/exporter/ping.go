package exporter

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"warpgauge/pkg/config"

	dto "github.com/prometheus/client_model/go"
	"github.com/urfave/cli/v3"
)

const pingPause = 250 * time.Millisecond // between two questions

func pingCommand(a *Program) *cli.Command {
	return &cli.Command{
		Name:  "ping",
		Usage: "Ask an exporter for /health and /metrics, as a test of an installation",
		Description: "Asks the exporter of this machine, or the one at --url, until both answer and a device is\n" +
			"up. If that takes longer than --timeout, it ends with code 1 and the reason.",
		Flags: append([]cli.Flag{timeoutFlag()}, config.URLFlags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			cfg, err := a.Config()
			if err := cmp.Or(config.NoArguments(cmd), err); err != nil {
				return err
			}
			address := strings.TrimSuffix(cmp.Or(cmd.String("url"), config.LocalURL(cfg.Web.Address)), "/")
			if !strings.Contains(address, "://") {
				return fmt.Errorf("--url is %q: write http://HOST:PORT", address)
			}
			trust, err := config.Trust(ctx, cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, cmd.Duration("timeout"))
			defer cancel()
			var last error
			for {
				text, err := ping(ctx, address, trust)
				if err == nil {
					_, err = fmt.Fprintln(a.Out, text)
					return err
				}
				if last == nil || ctx.Err() == nil { // else the error only names the timeout
					last = err
				}
				select {
				case <-ctx.Done():
					return fmt.Errorf("after %v: %w", cmd.Duration("timeout"), last)
				case <-time.After(pingPause):
				}
			}
		},
	}
}

// ping asks once and returns the exporter's state.
func ping(ctx context.Context, address string, trust *tls.Config) (string, error) {
	body, err := config.OpenPage(ctx, address+"/health", nil, trust)
	if _, refused := errors.AsType[*net.OpError](err); refused {
		return "", fmt.Errorf("nothing answers (no pod or process there, another port, a network policy): %w", err)
	}
	if err != nil {
		return "", fmt.Errorf("ask for /health: %w", err)
	}
	_ = body.Close() // only the status counts
	page, err := config.ReadPage(ctx, address+"/metrics", nil, trust)
	if err != nil {
		return "", err
	}
	if page["warpgauge_build_info"] == nil {
		return "", errors.New("another program than warpgauge answers")
	}
	up, problems := 0, []string{}
	for _, m := range page["warpgauge_device_state"].GetMetric() {
		if label(m, "state") == "up" {
			up++
		}
	}
	for _, m := range page["warpgauge_collector_problem"].GetMetric() {
		problems = append(problems, label(m, "collector")+" "+label(m, "cause"))
	}
	if up == 0 {
		return "", fmt.Errorf("exporter is running but no device is up: %s", cmp.Or(strings.Join(problems, ", "), "it has found no device"))
	}
	return fmt.Sprintf("/health answers; /metrics has %d families, %d devices are up", len(page), up), nil
}

// label returns the value of a series' label, or "".
func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
