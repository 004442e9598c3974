package programtest

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// AwaitReady waits until the process serves HTTP on loopback and answers a GET of the
// path with 200. It returns the address as http://host:port.
func (p *Process) AwaitReady(tb testing.TB, path string) (url string) {
	tb.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	p.Await(tb, p.name+" to be ready", func() error {
		address, err := p.Address()
		if err != nil {
			return err
		}
		url = "http://" + address
		return answers(tb.Context(), client, url+path)
	})
	return url
}

func answers(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return nil
}
