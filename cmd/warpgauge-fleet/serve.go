package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/urfave/cli/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"warpgauge/extensions/remote/fleet"
	"warpgauge/pkg/config"
	"warpgauge/pkg/file"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/server"
)

func serveCommand(errs io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "serve agents and operators",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "directory", Required: true, Sources: env("DIRECTORY"), Usage: "directory with fleet.yaml and the lists"},
			&cli.DurationFlag{Name: "reload-interval", Value: 5 * time.Second, Sources: env("RELOAD_INTERVAL"), Usage: "between two readings of the directory; it is taken when two are the same"},
			&cli.StringFlag{Name: "state-directory", Value: "/var/lib/warpgauge-fleet", Sources: env("STATE_DIRECTORY"), Usage: "directory for the state of rollouts"},
			&cli.StringFlag{Name: "agents-address", Sources: env("AGENTS_ADDRESS"), Usage: "where agents report, at " + fleet.OpAMPPath + "; default: :4320 if they need a credential, else 127.0.0.1:4320"},
			&cli.StringFlag{Name: "agents-token-file", Sources: env("AGENTS_TOKEN_FILE"), Usage: "bearer tokens of agents, one per line and agent; \"shared TOKEN\" is for many"},
			&cli.StringFlag{Name: "agents-service-account", Sources: env("AGENTS_SERVICE_ACCOUNT"), Usage: "NAMESPACE/NAME: agents send Kubernetes tokens of this service account for the audience " + fleet.Audience},
			&cli.StringFlag{Name: "agents-web-config-file", Sources: env("AGENTS_WEB_CONFIG_FILE"), Usage: "TLS and client certificates for agents, as Prometheus' exporter-toolkit has it"},
			&cli.StringFlag{Name: "address", Value: "127.0.0.1:4321", Sources: env("ADDRESS"), Usage: "where operators find the API and the metrics"},
			&cli.StringFlag{Name: "token-file", Sources: env("TOKEN_FILE"), Usage: "bearer tokens of operators, one per line"},
			&cli.StringFlag{Name: "web-config-file", Sources: env("WEB_CONFIG_FILE"), Usage: "TLS, client certificates and passwords for operators"},
			&cli.IntFlag{Name: "max-agents", Value: 20_000, Sources: env("MAX_AGENTS"), Usage: "agents that are remembered at most"},
			&cli.DurationFlag{Name: "warmup", Value: time.Minute, Sources: env("WARMUP"), Usage: "after a start: no stage begins or is judged until agents had this long to report"},
			&cli.StringFlag{Name: "log-level", Value: "info", Sources: env("LOG_LEVEL"), Usage: "debug, info, warn or error"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error { return serve(ctx, cmd, errs) },
	}
}

func serve(ctx context.Context, cmd *cli.Command, errs io.Writer) error {
	level, err := zapcore.ParseLevel(cmd.String("log-level"))
	if err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	e := zap.NewProductionEncoderConfig()
	e.TimeKey, e.EncodeTime = "time", zapcore.ISO8601TimeEncoder
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(e), zapcore.Lock(zapcore.AddSync(errs)), level))
	switch n := cmd.Int("max-agents"); {
	case n < 1 || n > 100_000:
		return fmt.Errorf("--max-agents is %d: write a number from 1 to 100000", n)
	case cmd.Duration("reload-interval") < 100*time.Millisecond:
		return errors.New("--reload-interval must be at least 100ms")
	case cmd.Duration("warmup") < 0:
		return errors.New("--warmup must not be negative")
	}
	agentLogin, err := fleet.NewLogin(cmd.String("agents-token-file"))
	if err != nil {
		return fmt.Errorf("--agents-token-file: %w", err)
	}
	if account := cmd.String("agents-service-account"); account != "" {
		api, err := kube.Config("warpgauge-fleet/" + version)
		if err == nil {
			agentLogin = cmp.Or(agentLogin, new(fleet.Login))
			agentLogin.Review, err = kube.NewReview(account, fleet.Audience, api)
		}
		if err != nil {
			return fmt.Errorf("--agents-service-account: %w", err)
		}
	}
	login, err := fleet.NewLogin(cmd.String("token-file"))
	if err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	web, err := server.ReadWebConfig(cmd.String("web-config-file"), log)
	if err != nil {
		return fmt.Errorf("--web-config-file: %w", err)
	}
	agentsWeb, err := server.ReadWebConfig(cmd.String("agents-web-config-file"), log)
	if err != nil {
		return fmt.Errorf("--agents-web-config-file: %w", err)
	}
	checksAgents := agentLogin != nil || agentsWeb.KnowsClients()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	program := fleet.New(fleet.Options{
		Directory: cmd.String("directory"), ReloadInterval: cmd.Duration("reload-interval"),
		State:     file.Private{Path: cmd.String("state-directory"), Of: "the state", Flag: "state-directory"},
		MaxAgents: cmd.Int("max-agents"), Warmup: cmd.Duration("warmup"), ParseYAML: parseYAML,
		Registry: registry, Log: log, Version: version,
	})
	agents, err := new(net.ListenConfig).Listen(ctx, "tcp", cmp.Or(cmd.String("agents-address"), map[bool]string{true: ":4320", false: "127.0.0.1:4320"}[checksAgents]))
	if err != nil {
		return err
	}
	operators, err := new(net.ListenConfig).Listen(ctx, "tcp", cmd.String("address"))
	if err != nil {
		return errors.Join(err, agents.Close())
	}
	const open = "--%s is %s, which others can reach: set --%s, or a --%s with client certificates or passwords"
	if login == nil && !web.KnowsClients() && !loopback(operators.Addr()) {
		err = fmt.Errorf(open, "address", operators.Addr(), "token-file", "web-config-file")
	}
	if !checksAgents && !loopback(agents.Addr()) {
		err = errors.Join(err, fmt.Errorf(open, "agents-address", agents.Addr(), "agents-token-file, --agents-service-account", "agents-web-config-file"))
	}
	if err != nil {
		return errors.Join(err, agents.Close(), operators.Close())
	}
	log.Info("serving", zap.Stringer("agents", agents.Addr()), zap.Stringer("operators", operators.Addr()))
	return program.Run(ctx,
		&fleet.Endpoint{Listener: agents, Login: agentLogin, Serve: agentsWeb.Serve, Bound: server.Bound},
		&fleet.Endpoint{Listener: operators, Login: login, Serve: web.Serve, Bound: server.Bound})
}

// dialects lists the name dialects that exporters support.
var dialects = []string{"amd"}

// parseYAML checks a YAML list by the exporter's rules and returns it as CSV.
func parseYAML(content []byte, name string) ([]byte, error) {
	c, problems, err := config.ParseDelivered(content, name, true, dialects...)
	for _, p := range problems {
		err = errors.Join(err, p)
	}
	if err != nil {
		return nil, err
	}
	return c.CSV, nil
}

func loopback(a net.Addr) bool {
	ap, err := netip.ParseAddrPort(a.String())
	return err == nil && ap.Addr().Unmap().IsLoopback()
}
