package rocm

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		begin := time.Now()
		if g.enter(time.Hour) || time.Since(begin) != 0 {
			t.Fatal("a barred gate lets in or makes wait")
		}
		g.open()
		for range 2 {
			if !g.enter(0) {
				t.Fatal("an open gate does not let in")
			}
		}

		// One inside leaves, the other never: shut gives up, and all is as before.
		g.leave()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if g.shut(ctx) || time.Since(begin) != time.Second {
			t.Fatal("shut with a call inside")
		}
		if !g.enter(0) {
			t.Fatal("shut gave up and the gate is not open")
		}
		g.leave()

		// It leaves while shut waits; who comes meanwhile waits for open, but not
		// for ever.
		var wg sync.WaitGroup
		wg.Go(func() {
			if !g.shut(t.Context()) {
				t.Error("shut failed")
			}
		})
		synctest.Wait()
		if g.enter(time.Minute) {
			t.Error("let in while shut")
		}
		wg.Go(func() {
			if !g.enter(time.Minute) {
				t.Error("not let in after open")
			}
		})
		synctest.Wait()
		g.leave()
		synctest.Wait()
		time.Sleep(time.Second)
		g.open()
		wg.Wait()
		g.leave()

		// Barred, it sends those away who wait.
		if !g.shut(t.Context()) {
			t.Error("shut failed with nobody inside")
		}
		wg.Go(func() {
			begin := time.Now()
			if g.enter(time.Hour) || time.Since(begin) != time.Second {
				t.Errorf("let in, or waited for %v", time.Since(begin))
			}
		})
		time.Sleep(time.Second)
		g.bar()
		wg.Wait()
	})
}
