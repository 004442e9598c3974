package isolation

import (
	"bytes"
	"context"
	"time"

	"warpgauge/pkg/sampler"
)

// Times of the child's reports.
const (
	heartbeat  = time.Second            // a status at least as often, changed or not
	statusLook = 100 * time.Millisecond // how soon a change is told
	lookShare  = 50                     // looking takes at most one part in so many of the time
)

// report tells states, counts and log entries until ctx ends.
func (c *child) report(ctx context.Context) {
	go c.log.run(ctx, c.conn)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last []byte
	var lastTold, lastCounts time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		begin := time.Now()
		m := c.status()
		payload := marshal(m)
		beat := begin.Sub(lastTold) >= heartbeat-statusLook/2
		if beat || !bytes.Equal(payload, last) {
			if c.conn.send(kindStatus, m) != nil {
				return // the parent is gone, which the listener notices
			}
			last, lastTold = payload, begin
		}
		if begin.Sub(lastCounts) >= heartbeat-statusLook/2 {
			lastCounts = begin
			c.tellCounts()
		}
		timer.Reset(min(max(statusLook, lookShare*time.Since(begin)), heartbeat))
	}
}

// tellCounts sends what the child has counted. If the parent is gone the
// listener notices.
func (c *child) tellCounts() {
	if all, err := c.counts.Gather(); err == nil {
		_ = c.conn.send(kindMetrics, countsOf(all))
	}
}

// status is the sampler's, with devices by their place in the sources shown.
func (c *child) status() *status {
	st := c.sampler.Status()[0]
	m := &status{up: st.Up, cause: string(st.Cause), reason: st.Reason}
	var places map[string]deviceState
	for i := range st.Devices {
		d := &st.Devices[i]
		if d.State == sampler.Up && d.Cause == sampler.CauseNone {
			continue
		}
		if places == nil {
			places = c.places()
		}
		if p, ok := places[d.Device.ID]; ok {
			p.state, p.cause, p.reason = d.State, string(d.Cause), d.Reason
			m.devices = append(m.devices, p)
		} else if d.Cause == sampler.CauseVanished {
			m.missing = append(m.missing, *d)
		}
	}
	return m
}

// places says where each device in service is.
func (c *child) places() map[string]deviceState {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]deviceState)
	for _, s := range c.shown {
		for i := range s.devices {
			out[s.devices[i].ID] = deviceState{source: s.id, device: i}
		}
	}
	return out
}
