package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/urfave/cli/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/live/page"
	"warpgauge/extensions/recorder"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/server"
)

const drainTimeout = time.Second // of connections, when replay ends

func replayCommand(a *app) *cli.Command {
	return &cli.Command{
		Name:      "replay",
		Usage:     "Serve page, API and /metrics of a recording",
		ArgsUsage: "FILE",
		Description: `FILE is a file of the flight recorder (--recorder-directory of warpgauge, /api/v1/recordings).
The program shows its end, or the time --at after its start. The page's slider shows other times.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:9401", Usage: "Address to serve on."},
			&cli.DurationFlag{Name: "at", Usage: "Time to show, from the beginning of the recording; default: its end."},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			r, err := openRecording(cmd)
			if err != nil {
				return err
			}
			at := r.Until
			if cmd.IsSet("at") {
				at = r.From.Add(cmd.Duration("at"))
			}
			if span := r.Until.Sub(r.From); at.Before(r.From) || at.After(r.Until) {
				return fmt.Errorf("--at is %v: the recording is %v long", cmd.Duration("at"), span)
			}
			return replay(ctx, a, r, cmd.String("listen"), at)
		},
	}
}

// openRecording reads the recording in the only argument.
func openRecording(cmd *cli.Command) (*recorder.Recording, error) {
	if cmd.Args().Len() != 1 {
		return nil, fmt.Errorf("%s takes one file; see warpctl %[1]s --help", cmd.Name)
	}
	f, err := os.OpenFile(cmd.Args().First(), os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO without a writer is empty
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading only
	r, err := recorder.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	r.Name = filepath.Base(f.Name())
	return r, nil
}

// replay serves the recording until ctx ends.
func replay(ctx context.Context, a *app, r *recorder.Recording, listen string, at time.Time) error {
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime, encoding.EncodeLevel = zapcore.ISO8601TimeEncoder, zapcore.CapitalLevelEncoder
	log := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(encoding), zapcore.Lock(zapcore.AddSync(a.err)), zap.InfoLevel))
	p, now := recorder.NewReplay(r, at), func() time.Time { return at }
	past := api.NewLog()
	for i := range r.Events {
		past.Add(&r.Events[i])
	}
	metrics := exposition.New(&p.Board, exposition.Options{Hostname: r.Hostname, Now: now})
	answers := api.New(api.Options{
		Hostname: r.Hostname, Version: a.build.Version, Recording: r.Name, Board: &p.Board, Node: p, Verdicts: p, NotReady: func() []string { return nil },
		Lists: r, People: people{p}, Events: past, Past: &rows.Past{History: p, MaxAge: r.Until.Sub(r.From)}, StaleAfter: 30 * time.Second, Now: now, Logger: log,
	})
	srv := server.New(metrics, server.Options{
		Address: listen, Logger: log, Registerer: prometheus.NewRegistry(), DrainTimeout: drainTimeout,
		Routes: append(server.Page(page.Handler(page.Options{Version: a.build.Version, Live: true})),
			server.Route{Pattern: api.Prefix, Handler: answers, Labels: answers.Paths(), Close: answers.Close}),
	})
	if err := srv.Listen(ctx); err != nil {
		return err
	}
	if len(metrics.Page(exposition.Text, false)) == 0 {
		log.Warn("the recording has no values at this time: /metrics is empty", zap.Time("at", at))
	}
	log.Info("replaying", zap.String("file", r.Name), zap.String("cause", r.Cause), zap.Time("from", r.From), zap.Time("until", r.Until))
	return srv.Run(ctx)
}

// people implements api.People.
type people struct{ *recorder.Replay }

func (p people) Users(d *collector.Device) (out []apiv1.User) {
	for _, u := range p.Replay.Users(d) {
		out = append(out, apiv1.User(u))
	}
	return out
}

func (people) Processes(*collector.Device) []apiv1.Process { return nil }

func (people) Viewed() {}
