package prometheustest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"warpgauge/internal/testkit"
)

// Query returns the results of an instant query.
func (s *Server) Query(tb testing.TB, expr string) model.Vector {
	tb.Helper()
	v, err := s.query(tb, expr)
	testkit.Must(tb, err)
	return v
}

// Await waits until an instant query has n results. A failure message names what.
func (s *Server) Await(tb testing.TB, what string, n int, expr string) {
	tb.Helper()
	s.await(tb, what, expr, func(v model.Vector) bool { return len(v) == n })
}

// await retries, unless expr is not a valid query.
func (s *Server) await(tb testing.TB, what, expr string, is func(model.Vector) bool) {
	tb.Helper()
	s.Process.Await(tb, what, func() error {
		v, err := s.query(tb, expr)
		var e *v1.Error
		if errors.As(err, &e) && e.Type == v1.ErrBadData {
			tb.Fatalf("%s: %v", what, err)
		}
		if err == nil && !is(v) {
			err = fmt.Errorf("query %s: %v", expr, v)
		}
		return err
	})
}

func (s *Server) query(tb testing.TB, expr string) (model.Vector, error) {
	result, _, _, err := s.API.Query(tb.Context(), expr, time.Time{}) // at the server's time
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", expr, err)
	}
	v, ok := result.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("query %s: a %v, want a vector", expr, result.Type())
	}
	return v, nil
}
