package prometheustest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// Query returns the results of an instant query.
func (s *Server) Query(tb testing.TB, expr string) model.Vector {
	tb.Helper()
	v, err := s.query(tb.Context(), expr)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// Value returns the value of an instant query that has one result.
func (s *Server) Value(tb testing.TB, expr string) float64 {
	tb.Helper()
	v, err := s.value(tb.Context(), expr)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// Await waits until an instant query has n results. The message of a failure names what.
func (s *Server) Await(tb testing.TB, what string, n int, expr string) {
	tb.Helper()
	s.await(tb, what, func(ctx context.Context) error {
		v, err := s.query(ctx, expr)
		if err == nil && len(v) != n {
			err = fmt.Errorf("query %s: %d results, want %d: %v", expr, len(v), n, v)
		}
		return err
	})
}

// AwaitValue waits until an instant query has one result, which is want.
func (s *Server) AwaitValue(tb testing.TB, what string, want float64, expr string) {
	tb.Helper()
	s.await(tb, what, func(ctx context.Context) error {
		v, err := s.value(ctx, expr)
		if err == nil && v != want {
			err = fmt.Errorf("query %s: %v, want %v", expr, v, want)
		}
		return err
	})
}

// await tries again, unless expr can never be a query.
func (s *Server) await(tb testing.TB, what string, f func(context.Context) error) {
	tb.Helper()
	s.Process.Await(tb, what, func() error {
		err := f(tb.Context())
		var e *v1.Error
		if errors.As(err, &e) && e.Type == v1.ErrBadData {
			tb.Fatalf("%s: %v", what, err)
		}
		return err
	})
}

func (s *Server) query(ctx context.Context, expr string) (model.Vector, error) {
	result, _, _, err := s.API.Query(ctx, expr, time.Time{}) // the server's time
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", expr, err)
	}
	v, ok := result.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("query %s: a %v, want a vector", expr, result.Type())
	}
	return v, nil
}

func (s *Server) value(ctx context.Context, expr string) (float64, error) {
	v, err := s.query(ctx, expr)
	if err != nil {
		return 0, err
	}
	if len(v) != 1 || v[0].Histogram != nil {
		return 0, fmt.Errorf("query %s: %d results, want one number: %v", expr, len(v), v)
	}
	return float64(v[0].Value), nil
}
