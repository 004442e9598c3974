package exporter

import (
	"context"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
)

// notifier tells systemd, where it has started us as a unit of Type=notify, that
// the exporter serves and that it ends. Elsewhere it does nothing. The port is open
// when stages are made, so what waits for the unit can scrape.
func notifier(log *zap.Logger) Stage {
	say := func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			log.Warn("systemd was not told", zap.String("state", state), zap.Error(err))
		}
	}
	return Stage{Name: "notices to systemd", Grace: ShortGrace, Run: func(ctx context.Context) error {
		say(daemon.SdNotifyReady)
		<-ctx.Done()
		say(daemon.SdNotifyStopping)
		return nil
	}}
}
