package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"google.golang.org/grpc/grpclog"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// Metadata is the API server's latest information about this node. It is immutable.
type Metadata struct {
	// Version grows when the content changes. The first answer of each list is a change; 0 means no answer yet.
	Version uint64
	// PodsTime and SlicesTime are when each list was last confirmed: by reading it, or by an event of the following
	// watch. Bookmarks count as events and arrive about once a minute. Zero: never.
	PodsTime, SlicesTime time.Time
	// Pods holds the pods of this node that have not ended.
	Pods map[PodName]PodMeta
	// ByUID finds a pod by each of its UIDs: the API's, and for a static pod also the kubelet's, which is in the names
	// of its cgroups.
	ByUID map[string]PodName
	// Slices holds the devices of this node's ResourceSlices.
	Slices map[DeviceName]SliceDevice
	// Claims holds the ResourceClaims that the kubelet listed and that have been read. Each lists the devices to which
	// it has admin access only, see Uses. nil: claims are not read. ClaimsTime is when the last list was processed.
	Claims     map[ClaimName][]DeviceName
	ClaimsTime time.Time
}

// APIOptions configure NewAPIServer. The zero value is usable and reads nothing.
type APIOptions struct {
	// Node is the name of this node in the API, normally from the environment variable NODE_NAME, which the downward API fills
	// from spec.nodeName. If Node is empty, APIServer reads nothing, and Health says which variable to set. The host name
	// cannot replace it: without hostNetwork it is the pod's name, and node names can differ from host names.
	Node      string
	Pods      bool                   // read UIDs and labels of this node's pods
	Slices    bool                   // read the devices of this node's ResourceSlices
	Kubelet   *Kubelet               // APIServer reads the claims of its latest answer; nil: it reads none
	KeepLabel func(name string) bool // selects the labels of pods to keep; nil: none, only UIDs
	UserAgent string                 // for the API server's audit log; empty: warpgauge
	OnChange  func()                 // called after new content was published; calls do not overlap; must not block; may be nil
	Log       *zap.Logger            // may be nil
}

// APIServer reads metadata of this node's pods and its ResourceSlices from the API server.
type APIServer struct {
	Health Healths // one per list

	o      APIOptions
	log    *zap.Logger
	config func() (*rest.Config, error) // called at the start and again after failures
	feeds  []*feed
	claims *claimReader // nil: claims are not read
	newest atomic.Pointer[Metadata]
	mu     sync.Mutex // serializes publishers
}

// NewAPIServer returns an APIServer, which reads nothing before Run.
func NewAPIServer(o APIOptions) *APIServer {
	o.Log = cmp.Or(o.Log, zap.NewNop())
	o.UserAgent = cmp.Or(o.UserAgent, "warpgauge")
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	s := &APIServer{o: o, log: o.Log.Named("podmeta"), config: configFromEnvironment}
	s.newest.Store(&Metadata{Pods: map[PodName]PodMeta{}, ByUID: map[string]PodName{}, Slices: map[DeviceName]SliceDevice{}})
	if o.Pods {
		s.addFeed(MappingPodMetadata, resource{"", "pods"}, pods{o.KeepLabel})
	}
	if o.Slices {
		s.addFeed(MappingResourceSlices, resource{resourceGroup, "resourceslices"}, resourceSlices{})
	}
	if o.Kubelet != nil {
		s.claims = &claimReader{s: s, known: map[ClaimName][]DeviceName{}}
		s.newest.Load().Claims = map[ClaimName][]DeviceName{}
	}
	return s
}

func (s *APIServer) addFeed(mapping string, r resource, k kind) {
	f := &feed{resource: r, s: s, mirror: mirror{kind: k}, health: NewHealth(mapping, s.o.Log, apiReasons...)}
	s.feeds, s.Health = append(s.feeds, f), append(s.Health, f.health)
}

// Snapshot returns the newest Metadata, which may be empty but is never nil. It does not wait.
func (s *APIServer) Snapshot() *Metadata { return s.newest.Load() }

// Run reads until ctx ends, and returns nil. It may be called once. It does not return while a call ignores its context,
// for example a kubeconfig's credential helper.
func (s *APIServer) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, f := range s.feeds {
		if s.o.Node == "" {
			f.health.Failed(ReasonNoNode, errNoNode)
			continue
		}
		running.Go(func() { f.run(ctx) })
	}
	if s.claims != nil {
		running.Go(func() { s.claims.run(ctx) })
	}
	running.Wait()
	return nil
}

// publish replaces the snapshot by a copy that edit has changed. edit reports whether anything except timestamps changed.
func (s *APIServer) publish(edit func(next *Metadata) (changed bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := *s.newest.Load()
	changed := edit(&next)
	if changed {
		next.Version++
	}
	s.newest.Store(&next)
	if changed {
		s.o.OnChange()
	}
}

const (
	qps, burst = 0.5, 10  // requests per second: each list needs one every few minutes for a list and a watch, even if a server ends watches early
	maxAnswer  = 16 << 20 // bytes of one answer, or of one event: thousands of pods with all their metadata
)

// client makes requests to an API server. Answers are JSON.
type client struct {
	rest.Interface
	close func() // closes idle connections
}

// configFromEnvironment returns the API server's address and credentials: from KUBECONFIG's files if it is set, else
// from this pod's service account.
func configFromEnvironment() (*rest.Config, error) {
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

// dial creates a client. It does not contact the API server.
func (s *APIServer) dial(qps float32, burst int) (*client, error) {
	found, err := s.config()
	if err != nil {
		return nil, err
	}
	config := prepared(found, s.o.UserAgent, qps, burst)
	config.Timeout = 0 // it would end watches, too; each call has its own limit
	return newClient(config)
}

// newClient creates a client and changes config. It does not contact the API server.
func newClient(config *rest.Config) (*client, error) {
	config.NegotiatedSerializer = metainternal.Codecs.WithoutConversion() // for refusals
	hc, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	c, err := rest.UnversionedRESTClientForConfigAndClient(config, hc)
	if err != nil {
		return nil, err
	}
	return &client{c, func() { utilnet.CloseIdleConnectionsFor(hc.Transport) }}, nil
}

// read makes a request and decodes the answer.
func read(ctx context.Context, r *rest.Request, v any) error {
	result := r.Do(ctx)
	body, err := result.Raw()
	if err != nil {
		return result.Error() // with the text of the server
	}
	return decode(body, v)
}

// create posts an object and decodes the answer.
func (c *client) create(ctx context.Context, path string, object, answer any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return read(ctx, c.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(text), answer)
}

// Config returns the configuration that APIServer uses, for another client's calls. Their answers must be short.
func Config(userAgent string) (*rest.Config, error) {
	found, err := configFromEnvironment()
	if err != nil {
		return nil, err
	}
	return prepared(found, userAgent, qps, burst), nil
}

// prepared returns a copy of a configuration with limits on requests and answers.
func prepared(found *rest.Config, userAgent string, qps float32, burst int) *rest.Config {
	config := rest.CopyConfig(found)
	config.UserAgent = userAgent
	config.QPS, config.Burst = qps, burst
	config.DisableCompression = true // answers are small, and the API server's CPU costs more than bandwidth within a cluster
	config.WarningHandler = rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next} })
	return config
}

// bounded limits answers that client-go reads completely into memory. A watch has no limit on its sum, because the feed
// limits each event.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err == nil && resp.Body != nil && r.URL.Query().Get("watch") == "" {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport to close its connections.
func (b bounded) WrappedRoundTripper() http.RoundTripper { return b.next }

var _ utilnet.RoundTripperWrapper = bounded{}

// SilenceLibraries drops the messages of client-go and gRPC, because writes to standard error can block. Health reports
// the important ones. It must be called before any other use of these libraries.
func SilenceLibraries() {
	klog.SetLogger(logr.Discard())
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
}
