package main

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/open-telemetry/opamp-go/protobufs"
	"github.com/open-telemetry/opamp-go/server"
	"github.com/open-telemetry/opamp-go/server/types"

	"warpgauge/extensions/remote"
	"warpgauge/extensions/remote/opamp"
	"warpgauge/internal/testkit/eventually"
)

// opampServer is opamp-go's server, with a list that it offers.
type opampServer struct {
	mu    sync.Mutex
	offer *protobufs.AgentRemoteConfig
	seen  *protobufs.AgentToServer // the last of each part
}

func (s *opampServer) message(m *protobufs.AgentToServer) *protobufs.ServerToAgent {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = &protobufs.AgentToServer{}
	}
	if m.AgentDescription != nil {
		s.seen.AgentDescription = m.AgentDescription
	}
	if m.EffectiveConfig != nil {
		s.seen.EffectiveConfig = m.EffectiveConfig
	}
	if m.RemoteConfigStatus != nil {
		s.seen.RemoteConfigStatus = m.RemoteConfigStatus
	}
	answer := &protobufs.ServerToAgent{}
	if s.offer != nil && string(s.seen.RemoteConfigStatus.GetLastRemoteConfigHash()) != string(s.offer.ConfigHash) {
		answer.RemoteConfig = s.offer
	}
	return answer
}

func (s *opampServer) offers(hash, list string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offer = &protobufs.AgentRemoteConfig{ConfigHash: []byte(hash), Config: &protobufs.AgentConfigMap{ConfigMap: map[string]*protobufs.AgentConfigFile{
		opamp.ConfigName: {Body: []byte(list), ContentType: "text/csv"},
	}}}
}

// status waits until the agent has reported what became of an offer.
func (s *opampServer) status(t *testing.T, hash string) (status protobufs.RemoteConfigStatuses, text, effective string) {
	t.Helper()
	eventually.True(t, "the agent reports on "+hash, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		r := s.seen.GetRemoteConfigStatus()
		status, text = r.GetStatus(), r.GetErrorMessage()
		effective = string(s.seen.GetEffectiveConfig().GetConfigMap().GetConfigMap()[opamp.ConfigName].GetBody())
		return string(r.GetLastRemoteConfigHash()) == hash && status != protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLYING
	})
	return status, text, effective
}

// TestOpAMPServerDelivers: a whole node takes lists from opamp-go's own server, over TLS with a pinned
// CA and a token, and keeps what it runs when the next list is not one for it.
func TestOpAMPServerDelivers(t *testing.T) {
	for _, scheme := range []string{"opamp+https", "opamp+wss"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			s := &opampServer{}
			s.offers("good", "DCGM_FI_DEV_SM_CLOCK, gauge, clock\n")
			handler, conns, err := server.New(nil).Attach(server.Settings{Callbacks: types.Callbacks{OnConnecting: func(r *http.Request) types.ConnectionResponse {
				if r.Header.Get("Authorization") != "Bearer secret" {
					return types.ConnectionResponse{HTTPStatusCode: http.StatusUnauthorized}
				}
				return types.ConnectionResponse{Accept: true, ConnectionCallbacks: types.ConnectionCallbacks{
					OnMessage: func(_ context.Context, _ types.Connection, m *protobufs.AgentToServer) *protobufs.ServerToAgent {
						return s.message(m)
					},
				}}
			}}})
			must(t, err)
			h := httptest.NewUnstartedServer(http.HandlerFunc(handler))
			h.Config.ConnContext = conns
			h.StartTLS()
			defer h.Close()
			dir := t.TempDir()
			ca, token := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
			must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}), 0o600))
			must(t, os.WriteFile(token, []byte("secret\n"), 0o600))

			n := newDeliveryNode(t, "--history-age=0", "--fake-devices=2", "--remote-url="+strings.Replace(h.URL, "https", scheme, 1),
				"--remote-interval=1s", "--remote-ca-file="+ca, "--remote-token-file="+token, "--node-label=rack=r7")
			source, err := n.source(&remote.Node{
				InstanceID: remote.InstanceID(t.Context(), "", "node-7"), Labels: n.cfg.Remote.NodeLabels, Facts: n.facts, Effective: n.effective, Changed: n.changes,
			})
			must(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- source.Run(ctx, n.Deliver) }()
			defer func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()

			if status, text, effective := s.status(t, "good"); status != protobufs.RemoteConfigStatuses_RemoteConfigStatuses_APPLIED || !strings.HasPrefix(effective, "DCGM_FI_DEV_SM_CLOCK,") {
				t.Errorf("status %v, %q; effective %q", status, text, effective)
			}
			if page := n.page(t); !strings.Contains(page, "\nDCGM_FI_DEV_SM_CLOCK{") || strings.Contains(page, "\nDCGM_FI_DEV_GPU_TEMP{") {
				t.Errorf("the page does not have the list of the server:\n%s", page)
			}
			s.offers("bad", "DCGM_FI_DEV_GPU_TEMP, gauge, t, interval=50ms\n")
			status, text, effective := s.status(t, "bad")
			if status != protobufs.RemoteConfigStatuses_RemoteConfigStatuses_FAILED || !strings.Contains(text, "line 1: ") || !strings.Contains(text, "the list in service stays, SHA-256 "+n.InService().Hash) {
				t.Errorf("status %v, %q", status, text)
			}
			if !strings.HasPrefix(effective, "DCGM_FI_DEV_SM_CLOCK,") {
				t.Errorf("effective %q", effective)
			}
			if page := n.page(t); !strings.Contains(page, "\nDCGM_FI_DEV_SM_CLOCK{") {
				t.Errorf("the list in service has gone:\n%s", page)
			}
		})
	}
}
