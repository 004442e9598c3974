package events

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"warpgauge/internal/testkit"
)

// texts receives the queued events.
func texts(s *Subscription) (out []string) {
	for {
		select {
		case e, open := <-s.C:
			if !open {
				return append(out, "closed")
			}
			out = append(out, e.Text)
		default:
			return out
		}
	}
}

func check(t *testing.T, what string, got, want []string) {
	t.Helper()
	testkit.ErrorIf(t, !slices.Equal(got, want), "%s: got %q, want %q", what, got, want)
}

func TestBus(t *testing.T) {
	var b Bus
	b.Publish(Event{Text: "no subscriber"})
	all, xids := b.Subscribe(8), b.Subscribe(8, XID, Clock)
	b.Publish(Event{Kind: XID, Text: "1"})
	b.Publish(Event{Kind: Reload, Text: "2"})
	check(t, "all kinds", texts(all), []string{"1", "2"})
	check(t, "some kinds", texts(xids), []string{"1"})
	b.Publish(Event{Kind: Clock, Text: "3"})
	xids.Close()
	xids.Close()
	b.Publish(Event{Kind: XID, Text: "4"})
	check(t, "all kinds, of which one has left", texts(all), []string{"3", "4"})
	check(t, "what waited when it left", texts(xids), []string{"3", "closed"})
	(*Bus)(nil).Publish(Event{})
	b = Bus{Gate: oddOnly{}}
	all = b.Subscribe(8)
	for i := range 4 {
		b.Publish(Event{Code: i, Text: fmt.Sprint(i)})
	}
	check(t, "what the gate admits", texts(all), []string{"1", "3"})
}

// TestSlowSubscriber: a full queue keeps the first events, and Publish does not wait.
func TestSlowSubscriber(t *testing.T) {
	var b Bus
	slow, quick := b.Subscribe(2), b.Subscribe(8)
	for i := range 5 {
		b.Publish(Event{Text: fmt.Sprint(i)})
	}
	check(t, "the slow one", texts(slow), []string{"0", "1"})
	check(t, "the quick one", texts(quick), []string{"0", "1", "2", "3", "4"})
	if slow.Dropped() != 3 || quick.Dropped() != 0 {
		t.Errorf("dropped %d and %d, want 3 and 0", slow.Dropped(), quick.Dropped())
	}
}

type oddOnly struct{}

func (oddOnly) Admit(e Event) bool { return e.Code%2 == 1 }

// TestHammer adds and removes publishers and subscribers at the same time.
func TestHammer(t *testing.T) {
	var b Bus
	var publishers, subscribers sync.WaitGroup
	const each = 2000
	kept := b.Subscribe(4 * each)
	done := make(chan bool)
	for range 4 {
		publishers.Go(func() {
			for range each {
				b.Publish(Event{Kind: XID})
			}
		})
		subscribers.Go(func() {
			for {
				s := b.Subscribe(1)
				select {
				case <-s.C:
				case <-done:
				}
				s.Close()
				_ = s.Dropped()
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	publishers.Wait()
	close(done)
	subscribers.Wait()
	testkit.Equal(t, "events", 4*each, len(kept.C))
	testkit.Equal(t, "subscribers are left", 1, len(b.subscribers))
}

func TestPublishAllocatesNothing(t *testing.T) {
	var b Bus
	b.Subscribe(1)
	now := time.Now()
	n := testing.AllocsPerRun(100, func() { b.Publish(Event{Kind: XID, Time: now}) })
	testkit.ErrorIf(t, n != 0, "%v allocations per event, want 0", n)
}
