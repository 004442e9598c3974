package main

import (
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/mapping"
	"warpgauge/pkg/owner"
	"warpgauge/pkg/process"
)

// addProcesses finds the containers of processes, where collectors tell which are
// on which device.
func (o *owners) addProcesses(e *engine, table *owner.Options, changed func(), log *zap.Logger) {
	board := e.Processes()
	if board == nil {
		return
	}
	h := mapping.New(mapping.Processes, log, process.Reasons()...)
	c := process.New(board, process.Options{OnChange: changed, Health: h, Log: log})
	table.Processes = c.Snapshot
	o.suspicion.processes = c.Snapshot
	o.add(client{
		name: "processes", run: c.Run, grace: shortGrace,
		settled: lookedAfter(e, c),
	}, h)
}

// lookedAfter says whether processes were looked at after their collectors had
// told of them.
func lookedAfter(e *engine, c *process.Client) func() bool {
	var since time.Time
	return func() bool {
		if !e.readersOpened() {
			return false
		}
		if since.IsZero() {
			since = time.Now()
		}
		return c.Snapshot().Time.After(since)
	}
}
