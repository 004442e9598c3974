package exporter

import (
	"context"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
)

// notifier tells systemd that the exporter serves and that it ends, if systemd started it as a unit of
// Type=notify. The port is open before stages run, so units that wait for this one can scrape.
func notifier(log *zap.Logger) Stage {
	say := func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			log.Warn("cannot notify systemd", zap.String("state", state), zap.Error(err))
		}
	}
	return Stage{Name: "notices to systemd", Run: func(ctx context.Context) error {
		say(daemon.SdNotifyReady)
		<-ctx.Done()
		say(daemon.SdNotifyStopping)
		return nil
	}}
}
