package podmeta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	qps, burst = 0.5, 10  // requests a second: one list and then a watch every few minutes, however fast a server ends them
	maxAnswer  = 64 << 20 // bytes of one answer that is read whole: thousands of pods with all their metadata
)

// clients are the ways in which we talk to an API server.
type clients struct {
	pods   metadata.Interface
	slices dynamic.Interface
	// versions lists those of an API group, preferred first.
	versions func(ctx context.Context, group string) ([]string, error)
	close    func() // lets idle connections go
}

// FromEnvironment returns how to reach the API server: by the files that KUBECONFIG
// names, where it is set, else with the service account of this pod.
func FromEnvironment() (*rest.Config, error) {
	if files := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); files != "" {
		rules := &clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(files)}
		loaded, err := rules.Load()
		if err != nil {
			return nil, fmt.Errorf("read KUBECONFIG %q: %w", files, err)
		}
		config, err := clientcmd.NewDefaultClientConfig(*loaded, nil).ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("use KUBECONFIG %q: %w", files, err)
		}
		return config, nil
	}
	config, err := rest.InClusterConfig()
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, errors.New("this is not a pod of a cluster (KUBERNETES_SERVICE_HOST is not set), and KUBECONFIG is not set")
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("this pod has no service account token (automountServiceAccountToken), and KUBECONFIG is not set: %w", err)
	case err != nil:
		return nil, fmt.Errorf("use the service account of this pod: %w", err)
	}
	return config, nil
}

// connect makes clients. It does not talk to the API server yet.
func connect(find func() (*rest.Config, error), agent string) (*clients, error) {
	found, err := find()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoConfig, err)
	}
	config := rest.CopyConfig(found)
	config.UserAgent = agent
	config.QPS, config.Burst = qps, burst
	config.DisableCompression = true // answers are small, and the API server's time is dearer than bytes in a cluster
	config.Timeout = 0               // it would end watches too; each call has its own limit
	config.WarningHandler = rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next} })
	hc, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoConfig, err)
	}
	c := &clients{close: func() { utilnet.CloseIdleConnectionsFor(hc.Transport) }}
	if c.pods, err = metadata.NewForConfigAndClient(config, hc); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoConfig, err)
	}
	if c.slices, err = dynamic.NewForConfigAndClient(config, hc); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoConfig, err)
	}
	plain := rest.CopyConfig(config)
	plain.NegotiatedSerializer = metainternal.Codecs.WithoutConversion()
	raw, err := rest.UnversionedRESTClientForConfigAndClient(plain, hc)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoConfig, err)
	}
	c.versions = func(ctx context.Context, group string) ([]string, error) { return versionsOf(ctx, raw, group) }
	return c, nil
}

// versionsOf asks for one group, not for all: a cluster's whole discovery is megabytes.
func versionsOf(ctx context.Context, c rest.Interface, group string) ([]string, error) {
	body, err := c.Get().AbsPath("/apis", group).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var answer struct {
		Versions []struct {
			Version string `json:"version"`
		} `json:"versions"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("read versions of apiGroup %q: %w", group, err)
	}
	versions := make([]string, 0, len(answer.Versions))
	for _, v := range answer.Versions {
		versions = append(versions, v.Version)
	}
	return versions, nil
}

// bounded limits answers that client-go reads whole into memory. Events of a watch
// are bounded by its decoder, and their sum must not be.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err == nil && resp.Body != nil && r.URL.Query().Get("watch") == "" {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport whose connections it closes.
func (b bounded) WrappedRoundTripper() http.RoundTripper { return b.next }

var (
	_ http.RoundTripper           = bounded{}
	_ utilnet.RoundTripperWrapper = bounded{}
)
